#!/usr/bin/env bash
# kill -9 of the server under a mounted ext4, life after life, two of three with blocks stored in parts of pages, and two
# of three with a volume that replays by itself what the journal had committed:
# what was fsynced is there, the volume's invariants hold, and e2fsck finds nothing. LIVES=n for more of them, LAYOUT=ordered or
# shadow for tables in place; needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo "kill_under_ext4: passed over: it needs root, /dev/fuse and /dev/loop-control"
    exit 0
fi
LIVES=${LIVES:-5}
LAYOUT=${LAYOUT:-log}
VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
[ -x "$VELLUM" ] || cargo build --release --locked -p vellum-cli
VELLUM=$(realpath "$VELLUM")

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-kill.XXXXXX")
mkdir "$dir/fuse" "$dir/mnt"
server='' writer='' loop='' life=0
compress=(zstd off lz4)
[ "$LAYOUT" = log ] || compress=(off off off)
options=data=journal,journal_async_commit
[ "$LAYOUT" != ordered ] || options=data=journal
replay=(on on off)
redeemed=0

let_go() {
    umount "$dir/mnt" 2>/dev/null || umount -l "$dir/mnt" 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
    fusermount3 -u "$dir/fuse" 2>/dev/null || fusermount3 -uz "$dir/fuse" 2>/dev/null || true
    loop=''
}
cleanup() {
    set +e
    [ -z "$writer" ] || kill -KILL "$writer" 2>/dev/null
    let_go
    [ -z "$server" ] || kill "$server" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

serve() {
    "$VELLUM" serve "v=$dir/volume" --fuse "$dir/fuse" --policy "compress=${compress[life % 3]},replay=${replay[life % 3]}" >"$dir/log" 2>&1 &
    server=$!
    local tries
    for ((tries = 0; tries < 3000; tries++)); do
        if [ -e "$dir/fuse/v" ]; then
            local found
            found=$("$VELLUM" stats --json "$dir/volume" | grep -o '"redeemed_blocks": *[0-9]*' | grep -o '[0-9]*$')
            redeemed=$((redeemed + found))
            loop=$(losetup --find --show --direct-io=on "$dir/fuse/v")
            return
        fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    cat "$dir/log"
    exit 1
}

# Writes files until it fails; a line in the log says that one, and its name, are durable.
cat >"$dir/writer.py" <<'PY'
import hashlib, os, sys
root, log, life = sys.argv[1:]
done = open(log, "a", buffering=1)
for n in range(1_000_000):
    name = f"{life}-{n}"
    content = hashlib.sha256(name.encode()).digest() * (1 + n * 37 % 900)
    file = os.open(f"{root}/{name}", os.O_CREAT | os.O_WRONLY)
    os.write(file, content)
    os.fsync(file)
    os.close(file)
    folder = os.open(root, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    done.write(name + "\n")
    if n % 5 == 4:  # one in five goes again, so that there are frees
        old = f"{life}-{n - 2}"
        done.write("-" + old + "\n")
        os.unlink(f"{root}/{old}")
PY
cat >"$dir/reader.py" <<'PY'
import hashlib, sys
root, log = sys.argv[1:]
lines = [line.strip() for line in open(log)]
gone = {line[1:] for line in lines if line.startswith("-")}
bad = 0
names = [line for line in lines if not line.startswith("-") and line not in gone]
for name in names:
    n = int(name.split("-")[1])
    want = hashlib.sha256(name.encode()).digest() * (1 + n * 37 % 900)
    try:
        good = open(f"{root}/{name}", "rb").read() == want
    except OSError as error:
        good = False
        print(error)
    if not good:
        bad += 1
        print("lost or wrong:", name)
print(len(names), "files that were fsynced,", bad, "lost or wrong")
sys.exit(bad > 0)
PY

: >"$dir/acknowledged"
"$VELLUM" create "$dir/volume" --size 512M --layout "$LAYOUT" >/dev/null
for ((life = 1; life <= LIVES; life++)); do
    serve
    [ "$life" -gt 1 ] || mkfs.ext4 -q -F -b 4096 "$loop"
    mount -o "$options" "$loop" "$dir/mnt"
    python3 "$dir/reader.py" "$dir/mnt" "$dir/acknowledged"
    python3 "$dir/writer.py" "$dir/mnt" "$dir/acknowledged" "$life" 2>/dev/null &
    writer=$!
    sleep "$((1 + RANDOM % 2)).$((RANDOM % 10))"
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=''
    sleep 0.2
    kill -KILL "$writer" 2>/dev/null || true
    wait "$writer" 2>/dev/null || true
    writer=''
    let_go
    "$VELLUM" check "$dir/volume" >"$dir/check" || { cat "$dir/check"; exit 1; }
done
serve
mount -o "$options" "$loop" "$dir/mnt"
python3 "$dir/reader.py" "$dir/mnt" "$dir/acknowledged"
umount "$dir/mnt"
e2fsck -fn "$loop" >"$dir/fsck" 2>&1 || { cat "$dir/fsck"; exit 1; }
let_go
kill "$server"
wait "$server"
server=''
"$VELLUM" check "$dir/volume" >"$dir/check" || { cat "$dir/check"; exit 1; }
echo "kill_under_ext4: layout $LAYOUT, $LIVES lives, passed; $redeemed blocks were put home by recovery"
