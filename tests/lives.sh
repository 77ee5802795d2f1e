#!/usr/bin/env bash
# Lives of a real ext4 chosen by a seed: created, recreated over old contents, with and without a journal, with journals of many sizes and
# formats, in each data mode, remounted within a life, its host gone while the device continues, policies switched while files are written;
# and the server killed, also right after a mount. What was fsynced is there, e2fsck finds nothing, the volume's invariants hold, and what
# recovery has not written home by itself reads as before the kill. The seed fixes what is done, but not when it is killed: a failure may
# need a few runs to repeat.
# SEED=n for the lives of that seed, TIME=n seconds a layout, LIVES=n at most, LAYOUTS="log shadow ordered" for some, POLICY=NAME=VALUE,...
# for settings that override the seed's, KEEP=DIR for the volume of a failure; needs root.
name=lives
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 tune2fs resize2fs e2fsck fstrim blockdev python3
SEED=${SEED:-$RANDOM}
TIME=${TIME:-20}
LIVES=${LIVES:-1000000}
LAYOUTS=${LAYOUTS:-log shadow ordered}
POLICY=${POLICY:-}
KEEP=${KEEP:-}
story="$dir/story"
: >"$story"

told_of_failure() {
    local status=$?
    set +e
    if [ "$status" -ne 0 ] && [ "$status" -ne 130 ]; then
        cat "$story"
        echo "lives: again with: SEED=$SEED LIVES=${life:-0} TIME=100000 LAYOUTS=${layout:-} POLICY=$POLICY tests/lives.sh"
        if [ -n "$KEEP" ]; then
            mkdir -p "$KEEP/$SEED-${layout:-}"
            cp --sparse=always "$dir"/{volume,before,story,log,out,acknowledged,switched,digest,digested} "$KEEP/$SEED-${layout:-}/"
        fi
    fi
    (exit "$status")
    cleanup
}
trap told_of_failure EXIT

tell() { echo "$(date +%T.%N | cut -c1-12) $*" >>"$story"; }
chance() { [ $((RANDOM % 100)) -lt "$1" ]; } # PER CENT
pick() { # VALUE...: `picked` becomes one of them
    local at=$((RANDOM % $# + 1))
    picked=${!at}
}

# Not every mke2fs has it.
truncate -s 16M "$dir/made"
orphan_file=orphan_file
mkfs.ext4 -q -F -O orphan_file "$dir/made" 2>/dev/null || orphan_file=''
rm "$dir/made"

cat >"$dir/files.py" <<'PY'
import hashlib, json, os, random, struct, sys

POOL = [hashlib.shake_128(b"pool %d" % n).digest(4096) for n in range(32)]

# A block by its number: some are unique, some duplicates, some like a block of the journal.
def block(number):
    kind = number % 8
    own = hashlib.sha256(b"%d" % number).digest()
    if kind == 0:
        return hashlib.shake_128(own).digest(4096)
    if kind == 1:
        return own * 128
    if kind == 2:
        return POOL[number // 8 % 32]
    if kind == 3:
        return (POOL[number // 8 % 32][:2000] + own + POOL[number // 8 % 32][2032:])
    if kind == 4:
        return bytes(4096)
    if kind == 5:
        return struct.pack(">III", 0xC03B3998, 1 + number // 8 % 5, number // 64 % 100) + own + bytes(4052)
    if kind == 6:
        return (b"%d a line of text, and then one more\n" % number * 200)[:4096]
    return hashlib.shake_128(own).digest(1024) + bytes(3072)

def content(numbers):
    return b"".join(map(block, numbers))
PY
cat >"$dir/writer.py" <<'PY'
import errno, time
from files import *
root, log, life, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
numbers = random.Random(life)
done = open(log, "a", buffering=1)
until = time.monotonic() + seconds
alive = {}
def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)

def numbered(count):
    return [numbers.randrange(1 << 40) for _ in range(count)]

def make(name):
    blocks = numbered(1 + numbers.choice([0, 3, 20, 80, 400]) * numbers.randrange(100) // 100)
    with open(f"{root}/{name}", "xb") as file:
        file.write(content(blocks))
    alive[name] = blocks

def one(n):
    what = numbers.random()
    if what < 0.4 or len(alive) < 8:
        name = f"{life}-{n}"
        done.write(f"? {name}\n")
        make(name)
    else:
        name = numbers.choice(sorted(alive))
        done.write(f"? {name}\n")
        blocks = list(alive.pop(name))
        path = f"{root}/{name}"
        if what < 0.55:
            os.unlink(path)
            return
        if what < 0.62:
            cut = numbers.randrange(len(blocks)) if blocks else 0
            os.truncate(path, cut * 4096)
            blocks = blocks[:cut]
        elif what < 0.7:
            other = f"{life}-{n}-r"
            done.write(f"? {other}\n")
            os.rename(path, f"{root}/{other}")
            name = other
        elif what < 0.8:
            with open(f"{root}/.{name}", "wb") as file:
                blocks = numbered(1 + numbers.randrange(20))
                file.write(content(blocks))
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{root}/.{name}", path)
        else:
            with open(path, "r+b") as file:
                for _ in range(numbers.randrange(1, 6)):
                    at = numbers.randrange(len(blocks) + 1)
                    fresh = numbered(numbers.randrange(1, 5))
                    blocks[at:at + len(fresh)] = fresh
                    file.seek(at * 4096)
                    file.write(content(fresh))
        alive[name] = blocks
    if numbers.random() < 0.5:
        sync(f"{root}/{name}")
        sync(root)
        if os.path.exists(os.path.dirname(log) + "/killed"):
            print("synced without a server", file=sys.stderr)
            return
        done.write(f"+ {name} {json.dumps(alive[name])}\n")

n = 0
while time.monotonic() < until:
    n += 1
    try:
        one(n)
        full = sum(map(len, alive.values())) > 15000
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        full = True
    if full:
        for name in sorted(alive)[::2]:
            done.write(f"? {name}\n")
            os.unlink(f"{root}/{name}")
            del alive[name]
PY
cat >"$dir/tools.py" <<'PY'
import fcntl, mmap, os, struct, sys, zlib
what, path = sys.argv[1:]
if what == "shutdown":  # EXT4_IOC_SHUTDOWN, and nothing is written any more: the host is gone, the device is not
    folder = os.open(path, os.O_RDONLY)
    fcntl.ioctl(folder, 0x8004587D, struct.pack("I", 2))
else:  # what each block of the device reads as
    device = os.open(path, os.O_RDONLY | os.O_DIRECT)
    os.fsync(device)
    size = os.lseek(device, 0, os.SEEK_END)
    page = mmap.mmap(-1, 1 << 20)
    for at in range(0, size, 1 << 20):
        count = os.preadv(device, [page], at)
        blocks = range(0, count, 4096)
        print("\n".join(f"{(at + block) // 4096} {zlib.crc32(page[block:block + 4096])}" for block in blocks))
PY
cat >"$dir/reader.py" <<'PY'
from files import *
root, log = sys.argv[1:]
sure = {}
for line in open(log):
    if not line.endswith("\n"):
        break
    what, name, *rest = line.split(maxsplit=2)
    sure.pop(name, None)
    if what == "+":
        sure[name] = json.loads(rest[0])
bad = 0
for name, blocks in sure.items():
    want = content(blocks)
    try:
        is_there = open(f"{root}/{name}", "rb").read()
    except OSError as error:
        bad += 1
        print("lost:", error)
        continue
    if is_there != want:
        bad += 1
        wrong = [n for n in range(len(want) // 4096) if want[n * 4096:][:4096] != is_there[n * 4096:][:4096]]
        print("wrong:", name, len(is_there), "bytes, to be", len(want), "; blocks", wrong[:20],
              "kinds", [blocks[n] % 8 for n in wrong[:20]], [is_there[n * 4096:][:16].hex() for n in wrong[:4]])
# Files that are there without being logged are read as well.
for name in os.listdir(root):
    if os.path.isfile(f"{root}/{name}"):
        open(f"{root}/{name}", "rb").read()
print(len(sure), "files that were fsynced,", bad, "lost or wrong")
sys.exit(bad > 0)
PY

# Draws a policy that this layout accepts; sets `picked`.
policy() {
    local all=()
    pick on on on off paper descriptor; all+=("write-once=$picked")
    pick xxh3 xxh3 head64 crc32c; all+=("hash=$picked")
    pick on on off; all+=("zero=$picked")
    pick on off; all+=("dedup=$picked")
    pick on off; all+=("semantics=$picked")
    pick on off; all+=("freed=$picked")
    if [ "$layout" = log ]; then
        pick compare compare blake3; all+=("decide=$picked")
        pick on on off; all+=("replay=$picked")
        pick off lz4 zstd; all+=("compress=$picked")
        pick on off log; all+=("delta=$picked")
    fi
    local IFS=,
    picked="${all[*]}${POLICY:+,$POLICY}"
}

up() {
    policy
    tell "serve $picked"
    start serve "v=$dir/volume" --research "$picked"
    serving=1
}

# Runs a tool whose failure counts as a failure of the volume, and logs it.
must() { # COMMAND...
    tell "$*"
    "$@" >"$dir/out" 2>&1
}

# Makes a new ext4: nothing of the old contents is expected any more.
make() {
    local all=(-q -F)
    pick ^64bit 64bit; all+=(-O "$picked")
    pick ^metadata_csum metadata_csum; all+=(-O "$picked")
    pick ^inline_data ^inline_data inline_data; all+=(-O "$picked")
    pick extent extent extent ^extent,^64bit; all+=(-O "$picked")
    if chance 80; then
        # No fast commits: e2fsck 1.47 cannot always replay them, while the kernel can (EINVAL).
        pick '' "$orphan_file"; [ -z "$picked" ] || all+=(-O "$picked")
        pick 4 8 16 64; all+=(-J "size=$picked")
    else
        all+=(-O ^has_journal)
    fi
    pick 4096 4096 4096 4096 1024; all+=(-b "$picked")
    pick nodiscard discard nodiscard,lazy_journal_init=1,lazy_itable_init=1; all+=(-E "$picked")
    : >"$dir/acknowledged"
    must mkfs.ext4 "${all[@]}" "$loop" "$((${1:-0}))M"
}

# Waits until the device has found the file system, if it does: later requests are judged by what it knows then.
noticed() {
    local tries
    for ((tries = 0; tries < 20; tries++)); do
        [ "$(told '.write_once.file_systems | length')" = 0 ] || return 0
        sleep 0.1
    done
}

has() { tune2fs -l "$loop" 2>/dev/null | grep -q "features:.* $1"; }

# Changes an unmounted ext4.
change() {
    case $((RANDOM % 6)) in
        0 | 1) if has has_journal; then must tune2fs -O "${orphan_file:+^orphan_file,}^has_journal" "$loop"; else must tune2fs -O has_journal "$loop"; fi ;;
        2) if has has_journal; then
               must tune2fs -O "${orphan_file:+^orphan_file,}^has_journal" "$loop"
               pick 4 8 32; must tune2fs -O has_journal -J "size=$picked" "$loop"
           fi ;;
        3) pick 300 350 384; must e2fsck -fp "$loop" || [ $? -le 1 ]; must resize2fs "$loop" "${picked}M" ;;
        4) pick metadata_csum ^metadata_csum; must e2fsck -fp "$loop" || [ $? -le 1 ]; must tune2fs -O "$picked" "$loop" || true; must e2fsck -fp "$loop" || [ $? -le 1 ] ;;
        5) pick -b -s; must e2fsck -fp "$loop" || [ $? -le 1 ]; must resize2fs "$picked" "$loop" || true ;;
    esac
}

# Mounts it with options that suit it.
mounted() {
    local options=()
    pick nodiscard nodiscard discard; options+=("$picked")
    if has has_journal; then
        pick commit=1 commit=1 commit=5; options+=("$picked")
        pick journal journal journal ordered writeback; options+=("data=$picked")
        if [ "$layout" != ordered ]; then
            pick journal_async_commit journal_checksum none
            [ "$picked" = none ] || options+=("$picked")
        fi
        journaled=1
    else
        journaled=0
    fi
    local all
    all=$(IFS=,; echo "${options[*]}")
    # Not all data modes allow asynchronous commits.
    if ! must mount -o "$all" "$loop" "$dir/mnt"; then
        must mount -o "${options[0]}" "$loop" "$dir/mnt"
    fi
}

read_back() {
    must python3 "$dir/reader.py" "$dir/mnt" "$dir/acknowledged"
    tell "$(tail -n1 "$dir/out")"
}

writes() { # SECONDS
    python3 "$dir/writer.py" "$dir/mnt" "$dir/acknowledged" "$life.$part" "$1" 2>"$dir/writer" &
    load=$!
}

switch() { # TIMES WITHIN-TENTHS
    local n
    for ((n = 0; n < $1; n++)); do
        policy
        tell "policy $picked"
        "$VELLUM" set "$dir/volume" --research "$picked" >"$dir/switched" 2>&1 || { cat "$dir/switched"; exit 1; }
        [ "$2" -eq 0 ] || sleep "0.$((RANDOM % 10))"
    done
}

# A killed server changes nothing that was flushed, and no host has anything to write home. But a block that was freed after it had been
# committed may hold the journal's copy of it (docs/decisions/0014).
same_after_kill() {
    must "$VELLUM" set "$dir/volume" --research freed=off
    blockdev --flushbufs "$loop"
    tell "digest, kill"
    python3 "$dir/tools.py" digest "$loop" >"$dir/digest"
    crash
    let_go
    serving=0
    [ -z "$KEEP" ] || cp --sparse=always "$dir/volume" "$dir/before"
    must "$VELLUM" check "$dir/volume"
    up
    python3 "$dir/tools.py" digest "$loop" >"$dir/digested"
    local redeemed
    redeemed=$(told .core.redeemed_blocks)
    tell "$redeemed blocks put home"
    diff "$dir/digest" "$dir/digested" >"$dir/out" || [ "$(grep -c '^<' "$dir/out")" -le "$redeemed" ] || exit 1
    must e2fsck -fn "$loop"
    same=$((same + 1))
}

# The host is gone while files are written, but the device is not.
shut_down() {
    writes 1000
    pick 0 0 1; switch "$picked" 0
    pick 0.05 0.2 0.4 0.9 1.5; sleep "$picked"
    must python3 "$dir/tools.py" shutdown "$dir/mnt"
    wait "$load" || true
    load=''
    must umount "$dir/mnt"
    shut=$((shut + 1))
    case $((RANDOM % 4)) in
        0) must e2fsck -fp "$loop" || [ $? -le 1 ] ;;
        1) pick 300 384; make "$picked"; made=$((made + 1)) ;; # over a journal that is full
        2)
            # Removing a journal leaves what is at home, and makes that final.
            must tune2fs -f -f -O "${orphan_file:+^orphan_file,}^has_journal" "$loop" || true
            must e2fsck -fy "$loop" || [ $? -le 1 ]
            : >"$dir/acknowledged"
            same_after_kill
            ;;
        *) dirty=1 ;; # mounted as it is
    esac
}

layout='' life=0 serving=0
for one in before digest digested acknowledged switched; do : >"$dir/$one"; done

# Runs lives of volumes of a layout.
live() { # LAYOUT
    layout=$1
    local until=$((SECONDS + TIME)) lives=0 mounts_made=0 fresh parts_of_life part
    made=0 same=0 shut=0 dirty=0 life=0
    RANDOM=$SEED
    while [ "$life" -lt "$LIVES" ] && [ "$SECONDS" -lt "$until" ]; do
        life=$((life + 1))
        # Few lives a volume, so that the history of a bad one is short.
        if [ $((life % 12)) -eq 1 ]; then
            [ "$serving" -eq 0 ] || finish
            rm -f "$dir/volume"
            : >"$story"
            tell "life $life, a new volume"
            "$VELLUM" create "$dir/volume" --size 384M --layout "$layout" >/dev/null
            serving=0
            fresh=1
        fi
        current="layout $layout, seed $SEED, life $life"
        tell "life $life"
        [ "$serving" -eq 1 ] || up
        pick 1 1 2 3; parts_of_life=$picked
        for ((part = 1; part <= parts_of_life; part++)); do
            if [ "$fresh" -eq 1 ] || chance 20; then
                pick 300 384; make "$picked"
                made=$((made + 1))
                fresh=0
                ! chance 50 || noticed
            elif [ "$dirty" -eq 0 ] && chance 25; then
                change
            fi
            mounted
            dirty=0
            mounts_made=$((mounts_made + 1))
            read_back
            find "$dir/mnt" -maxdepth 1 -type f | sed 's/.*\//? /' >>"$dir/acknowledged"
            if chance 50; then
                find "$dir/mnt" -maxdepth 1 -type f -delete
            else
                find "$dir/mnt" -maxdepth 1 -type f -name '*[02468]' -delete
            fi
            if [ "$part" -lt "$parts_of_life" ] || [ "$journaled" -eq 0 ]; then
                if [ "$journaled" -eq 1 ] && chance 30; then
                    shut_down
                    continue
                fi
                pick 0.3 0.8 1.5 2.5; writes "$picked"
                pick 0 0 1 2; switch "$picked" 3
                wait "$load" || { cat "$dir/writer"; exit 1; }
                load=''
                ! chance 20 || must fstrim "$dir/mnt" || true
                must umount "$dir/mnt"
                ! chance 50 || must e2fsck -fn "$loop"
                ! chance 10 || same_after_kill
            fi
        done
        if [ "$journaled" -eq 0 ]; then
            # Nothing would repair what a crash leaves.
            if chance 50; then
                tell finish
                finish
                sound
                serving=0
            fi
            continue
        fi
        writes 1000
        if chance 50; then
            pick 0 0 1; switch "$picked" 0
            pick 0.01 0.05 0.1 0.2 0.3 0.4 0.5 0.7 0.9; sleep "$picked"
        else
            pick 0 1 2 4; switch "$picked" 5
            pick 0.3 0.9 1.3 2.1; sleep "$picked"
        fi
        ! chance 10 || must fstrim "$dir/mnt" || true
        tell kill
        crash
        tail -n 1 "$dir/writer" >>"$story"
        let_go
        lives=$((lives + 1))
        serving=0
        [ -z "$KEEP" ] || cp --sparse=always "$dir/volume" "$dir/before"
        must "$VELLUM" check "$dir/volume"
        up
        if chance 50; then
            must e2fsck -fp "$loop" || [ $? -le 1 ]
            must e2fsck -fn "$loop"
        else
            must mount "$loop" "$dir/mnt"
            read_back
            must umount "$dir/mnt"
            must e2fsck -fn "$loop"
        fi
        must mount -o ro "$loop" "$dir/mnt"
        read_back
        must umount "$dir/mnt"
    done
    [ "$serving" -eq 0 ] || finish
    sound
    serving=0
    echo "lives: layout $layout, seed $SEED: $lives of $life lives killed, $mounts_made mounts, $made file systems made," \
        "$shut hosts gone, $same digests: passed"
}

for layout in $LAYOUTS; do
    live "$layout"
done
