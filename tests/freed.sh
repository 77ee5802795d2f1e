#!/usr/bin/env bash
# Blocks that a mounted ext4 frees are returned without its `discard` (freed=on), and no others: while files are created, overwritten,
# truncated and removed, in each data mode, the server is killed, life after life. What was fsynced is there, e2fsck finds nothing, the
# volume's invariants hold. LIVES=n for more lives, CASES="a b" for some cases; needs root.
name=freed
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 e2fsck python3
LIVES=${LIVES:-6}
CASES=${CASES:-"returns lives"}

up() { start serve "v=$dir/volume" --research "$1"; } # NAME=VALUE,...

down() {
    finish
    sound
}

# Writes journal and bitmaps home, followed by a flush.
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
    for ((tries = 0; tries < 1200; tries++)); do
        [ "$(told '[.freed.file_systems[] | select(.not_followed == null)] | length')" = 0 ] || return 0
        sleep 0.05
    done
    told .freed
    exit 1
}

# Space returned without `discard`, in each data mode; and how much stays without it.
returns() {
    local mode freed made kept end
    for mode in ordered journal writeback; do
        for freed in off on; do
            current="returns, data=$mode, freed=$freed"
            rm -f "$dir/volume"
            "$VELLUM" create "$dir/volume" --size 1G >/dev/null
            up "freed=$freed"
            mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
            mount -o "nodiscard,data=$mode" "$loop" "$dir/mnt"
            python3 - "$dir/mnt" <<'PY'
import os, sys
for n in range(150):
    with open(f"{sys.argv[1]}/{n}", "wb") as file:
        file.write(os.urandom(1 << 20))
PY
            # The first commits change what the scout has seen; from then on it follows.
            settle
            [ $freed = off ] || followed
            settle
            made=$(told .core.live_blocks)
            rm "$dir"/mnt/*[02468]
            settle
            kept=$(told .core.live_blocks)
            # A busy machine writes the bitmaps home later.
            end=$((SECONDS + 60))
            while [ $freed = on ] && [ "$((made - kept))" -le 15000 ] && [ "$SECONDS" -lt "$end" ]; do
                settle
                kept=$(told .core.live_blocks)
            done
            echo "freed: data=$mode, freed=$freed: $made blocks live with 150 MiB of files, $kept after half of them were removed"
            told .freed >"$dir/out"
            if [ $freed = on ]; then
                [ "$((made - kept))" -gt 15000 ] || exit 1
            else
                [ "$((made - kept))" -lt 5000 ] || exit 1
            fi
            umount "$dir/mnt"
            clean "$loop"
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
            # Logged before the removal is certain: the file may be there or not.
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

# kill -9 under load, life after life, on one volume.
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
        # Files of earlier lives are removed to make room.
        find "$dir/mnt" -maxdepth 1 -name '*-*' | sed 's/.*\//- /' >>"$dir/acknowledged"
        find "$dir/mnt" -maxdepth 1 -name '*-*' -delete
        python3 "$dir/writer.py" "$dir/mnt" "$dir/acknowledged" "$life" 2>/dev/null &
        load=$!
        sleep 1
        sync -f "$dir/mnt"
        sleep "$((1 + RANDOM % 2)).$((RANDOM % 10))"
        now=$(told .freed.dropped_blocks)
        dropped=$((dropped + now))
        crash
        let_go
        sound
        # The result of a replay, checked with other tools.
        up freed=off
        mount -o nodiscard "$loop" "$dir/mnt"
        python3 "$dir/reader.py" "$dir/mnt" "$dir/acknowledged" >"$dir/out" || { cat "$dir/out"; exit 1; }
        umount "$dir/mnt"
        clean "$loop"
        down
    done
    echo "freed: $LIVES lives, $dropped blocks dropped"
    [ "$dropped" -gt 0 ] || exit 1
}

for part in $CASES; do
    "$part"
done
echo "freed: passed"
