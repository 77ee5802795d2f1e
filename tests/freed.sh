#!/usr/bin/env bash
# Blocks that a mounted ext4 frees come back without its `discard` (policy freed=on), and nothing else goes: under files that
# are made, overwritten, cut and removed, in each data mode, the server is killed, life after life. What was fsynced is
# there, e2fsck finds nothing, the volume's invariants hold. LIVES=n for more of them, CASES="a b" for some; needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo "SKIP: freed: it needs root, /dev/fuse and /dev/loop-control"
    exit 0
fi
for tool in mkfs.ext4 e2fsck losetup fusermount3 jq python3; do
    command -v "$tool" >/dev/null || { echo "SKIP: freed: it needs $tool"; exit 0; }
done
LIVES=${LIVES:-6}
CASES=${CASES:-"returns lives"}
VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
[ -x "$VELLUM" ] || cargo build --release --locked -p vellum-cli
VELLUM=$(realpath "$VELLUM")

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-freed.XXXXXX")
mkdir "$dir/fuse" "$dir/mnt"
server='' loop='' writer='' current=''

cleanup() {
    local status=$?
    set +e
    [ -z "$writer" ] || kill -KILL "$writer" 2>/dev/null
    if [ "$status" -ne 0 ]; then
        echo "freed: FAILED in: $current"
        tail -n 20 "$dir/log" "$dir/out"
    fi
    let_go
    [ -z "$server" ] || kill "$server" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

let_go() {
    ! mountpoint -q "$dir/mnt" || umount "$dir/mnt" 2>/dev/null || umount -l "$dir/mnt" || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
    fusermount3 -u "$dir/fuse" 2>/dev/null || fusermount3 -uz "$dir/fuse" 2>/dev/null || true
    loop=''
}

up() { # POLICY
    "$VELLUM" serve "v=$dir/volume" --fuse "$dir/fuse" --policy "$1" >"$dir/log" 2>&1 &
    server=$!
    local tries
    for ((tries = 0; tries < 3000; tries++)); do
        if [ -e "$dir/fuse/v" ]; then
            loop=$(losetup --find --show --direct-io=on "$dir/fuse/v")
            return
        fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    exit 1
}

check() {
    "$VELLUM" check "$dir/volume" >"$dir/out" || exit 1
}

down() {
    let_go
    kill "$server"
    wait "$server"
    server=''
    check
}

of() { # JQ-PATH
    "$VELLUM" stats "$dir/volume" --json | jq ".[0].stats | $1"
}

# Journal and bitmaps home, and a flush behind them.
settle() {
    local n
    for n in 1 2 3; do
        sync
        touch "$dir/mnt/settle.$n"
        sync "$dir/mnt/settle.$n"
    done
    sleep 0.5
}

followed() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        [ "$(of '[.freed.file_systems[] | select(.not_followed == null)] | length')" = 0 ] || return 0
        sleep 0.05
    done
    of .freed
    exit 1
}

# Space returned without `discard`, in each data mode; and how much stays without the policy.
returns() {
    local mode freed made kept
    for mode in ordered journal writeback; do
        for freed in off on; do
            current="returns, data=$mode, freed=$freed"
            rm -f "$dir/volume"
            "$VELLUM" create "$dir/volume" --size 1G >/dev/null
            up "freed=$freed"
            mkfs.ext4 -q -F -b 4096 "$loop"
            mount -o "nodiscard,data=$mode" "$loop" "$dir/mnt"
            [ $freed = off ] || followed
            python3 - "$dir/mnt" <<'PY'
import os, sys
for n in range(150):
    with open(f"{sys.argv[1]}/{n}", "wb") as file:
        file.write(os.urandom(1 << 20))
PY
            settle
            made=$(of .core.live_blocks)
            rm "$dir"/mnt/*[02468]
            settle
            kept=$(of .core.live_blocks)
            echo "freed: data=$mode, freed=$freed: $made blocks live with 150 MiB of files, $kept after half of them were removed"
            of .freed >"$dir/out"
            if [ $freed = on ]; then
                [ "$((made - kept))" -gt 15000 ] || exit 1
            else
                [ "$((made - kept))" -lt 5000 ] || exit 1
            fi
            umount "$dir/mnt"
            e2fsck -fn "$loop" >"$dir/out" 2>&1
            down
        done
    done
}

cat >"$dir/writer.py" <<'PY'
import hashlib, os, random, sys
root, log, life = sys.argv[1:]
numbers = random.Random(life)
done = open(log, "a", buffering=1)

def content(name, version, blocks):
    return b"".join(hashlib.sha256(f"{name} {version} {n}".encode()).digest() * 128 for n in range(blocks))

alive = {}
for n in range(1_000_000):
    what = numbers.random()
    if what < 0.5 or len(alive) < 8:
        name, version = f"{life}-{n}", 0
        blocks = 1 + numbers.randrange(60)
    else:
        name = numbers.choice(sorted(alive))
        version, blocks = alive[name]
        if what < 0.9:
            # Given up before that is known to be so: it may be there or not.
            done.write(f"- {name}\n")
            if numbers.random() < 0.3:
                os.truncate(f"{root}/{name}", 0)
            os.unlink(f"{root}/{name}")
            del alive[name]
            continue
        version += 1
    done.write(f"? {name}\n")
    with open(f"{root}/{name}", "r+b" if version else "xb") as file:
        file.write(content(name, version, blocks))
        file.flush()
        if numbers.random() < 0.4:
            os.fsync(file.fileno())
            folder = os.open(root, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
            done.write(f"+ {name} {version} {blocks}\n")
    alive[name] = (version, blocks)
PY
cat >"$dir/reader.py" <<'PY'
import hashlib, sys
root, log = sys.argv[1:]

def content(name, version, blocks):
    return b"".join(hashlib.sha256(f"{name} {version} {n}".encode()).digest() * 128 for n in range(blocks))

sure = {}
for line in open(log):
    if not line.endswith("\n"):
        break
    what, name, *rest = line.split()
    sure.pop(name, None)
    if what == "+":
        sure[name] = tuple(map(int, rest))
bad = 0
for name, (version, blocks) in sure.items():
    try:
        good = open(f"{root}/{name}", "rb").read() == content(name, version, blocks)
    except OSError as error:
        good = False
        print(error)
    if not good:
        bad += 1
        print("lost or wrong:", name)
print(len(sure), "files that were fsynced,", bad, "lost or wrong")
sys.exit(bad > 0)
PY

# kill -9 under a load, life after life, over one volume.
lives() {
    local life modes=(ordered journal writeback) writes=(on off descriptor) dropped=0 now
    : >"$dir/acknowledged"
    rm -f "$dir/volume"
    "$VELLUM" create "$dir/volume" --size 512M >/dev/null
    for ((life = 1; life <= LIVES; life++)); do
        current="life $life"
        up "freed=on,dedup=on,compress=lz4,write-once=${writes[life % 3]}"
        [ "$life" -gt 1 ] || mkfs.ext4 -q -F -b 4096 -J size=8 "$loop"
        mount -o "nodiscard,commit=1,data=${modes[life % 3]}" "$loop" "$dir/mnt"
        followed
        python3 "$dir/reader.py" "$dir/mnt" "$dir/acknowledged"
        # What earlier lives have left is removed, so that there is room.
        find "$dir/mnt" -maxdepth 1 -name '*-*' | sed 's/.*\//- /' >>"$dir/acknowledged"
        find "$dir/mnt" -maxdepth 1 -name '*-*' -delete
        python3 "$dir/writer.py" "$dir/mnt" "$dir/acknowledged" "$life" 2>/dev/null &
        writer=$!
        sleep 1
        sync -f "$dir/mnt"
        sleep "$((1 + RANDOM % 2)).$((RANDOM % 10))"
        now=$(of .freed.dropped_blocks)
        dropped=$((dropped + now))
        kill -KILL "$server"
        wait "$server" 2>/dev/null || true
        server=''
        sleep 0.2
        kill -KILL "$writer" 2>/dev/null || true
        wait "$writer" 2>/dev/null || true
        writer=''
        let_go
        check
        # What a replay makes of it, by another hand.
        up freed=off
        mount -o nodiscard "$loop" "$dir/mnt"
        python3 "$dir/reader.py" "$dir/mnt" "$dir/acknowledged" >"$dir/out" || { cat "$dir/out"; exit 1; }
        umount "$dir/mnt"
        e2fsck -fn "$loop" >"$dir/out" 2>&1
        down
    done
    echo "freed: $LIVES lives, $dropped blocks dropped"
    [ "$dropped" -gt 0 ] || exit 1
}

for name in $CASES; do
    "$name"
done
echo "freed: passed"
