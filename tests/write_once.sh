#!/usr/bin/env bash
# Write-once journaling under a real ext4, where it could go wrong: blocks that begin with jbd2's magic or look alike, data that were never
# journaled, direct I/O, mkfs and e2fsck over a live volume, lazy initialisation, journals that wrap, move and are recreated, two
# partitions, every hash and rule, switching under load, kill -9, a damaged copy.
#
# After each: e2fsck -fn finds nothing, `vellum check` finds nothing, and a new server reads what a copy elsewhere holds. Needs root.
# CASES="a b" for some of them.
name=write_once
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 e2fsck resize2fs tune2fs debugfs lsattr sfdisk python3
mkdir "$dir/mnt2" "$dir/copy" "$dir/copy2"
mounts+=("$dir/mnt2")
others=("$dir/copy" "$dir/copy2")
options=data=journal,journal_async_commit

up() { # [POLICY]
    policy=${1:-${policy:-write-once=on}}
    start serve "v=$dir/volume" --research "compress=off,delta=off,$policy"
}

down() {
    finish
    sound
}

# A volume of this size, served; the copies are empty. They are in memory, where an fsync costs nothing.
fresh() { # SIZE [POLICY]
    local place
    for place in "$dir/copy" "$dir/copy2"; do
        ! mountpoint -q "$place" || umount "$place"
        mount -t tmpfs -o size=1G none "$place"
    done
    rm -f "$dir/volume"
    "$VELLUM" create "$dir/volume" --size "$1" >/dev/null
    policy=''
    up "${2:-}"
}

made() { mkfs.ext4 -q -F -b 4096 "$@" "$loop"; }
mounted() { mount -o "${1:-$options}" "$loop" "$dir/mnt"; }
churn() { tests/workloads/churn.py "${4:-$dir/mnt}" "$2" "$1" "${3:-$dir/copy}" >"$dir/out"; }
# The same workload on the file system and on the copy; workloads are deterministic.
both() { # WORKLOAD SCALE PARAMETER...
    local program=$1 place
    shift
    for place in "$dir/mnt" "$dir/copy"; do
        mkdir "$place/$program"
        "tests/workloads/$program.py" "$place/$program" "$@" >"$dir/out"
    done
}
counter() { told ".core.$1"; }
same() { # PLACE COPY
    diff -rq -x lost+found -x .prepared "$1" "$2" >"$dir/out" || exit 1
}
# e2fsck may repair what it finds: 1 means that it did.
repaired() { e2fsck -fy "$@" "$loop" >"$dir/out" 2>&1 || [ $? -eq 1 ]; }

# The end of a case: unmount, check, and read back from a new server.
finished() { # LEAST-REMAPPED
    umount "$dir/mnt"
    clean "$loop"
    local remapped
    remapped=$(counter remapped_blocks)
    told .core >"$dir/out"
    down
    up
    mounted ro
    same "$dir/mnt" "$dir/copy"
    umount "$dir/mnt"
    down
    [ "$remapped" -ge "$1" ] || { echo "$remapped blocks remapped, at least $1 expected" >"$dir/out"; exit 1; }
    printf '   %s blocks remapped\n' "$remapped"
}

case_misleading() {
    fresh 512M
    made -J size=16
    mounted
    churn 1 100
    churn 2 50
    finished 1000
}

# Every hash, and every rule.
case_hashes() {
    local seed=20 choice
    for choice in hash=xxh3 hash=head64 hash=crc32c hash=md5 hash=sha1 paper,hash=head64 descriptor off; do
        case $choice in hash=*) choice="on,$choice" ;; esac
        fresh 256M "write-once=$choice"
        printf '   %-18s' "$choice"
        made -J size=8
        mounted
        churn "$((seed++))" 25
        finished "$([ "$choice" = off ] && echo 0 || echo 100)"
    done
}

# In data=ordered only files with the attribute j are journaled: here two trees get the same contents, and one is written home by direct I/O
# while the journal holds blocks that are equal, or begin alike.
case_not_journaled() {
    fresh 512M write-once=on,hash=head64
    made -J size=8
    mounted data=ordered
    mkdir "$dir/mnt/journaled" "$dir/mnt/plain" "$dir/copy/journaled" "$dir/copy/plain"
    umount "$dir/mnt"
    # Without chattr, which many containers do not permit. 0x80000 is the extent tree, 0x4000 the attribute; files inherit it.
    debugfs -w -R 'set_inode_field /journaled flags 0x84000' "$loop" 2>/dev/null
    # The kernel heeds the attribute only without delayed allocation.
    mounted data=ordered,nodelalloc
    lsattr -d "$dir/mnt/journaled" | grep -q '^[^ ]*j'
    local seed
    for seed in 30 31; do
        churn "$seed" 40 "$dir/copy/plain" "$dir/mnt/plain" &
        load=$!
        churn "$seed" 40 "$dir/copy/journaled" "$dir/mnt/journaled"
        wait "$load"
        load=''
    done
    finished 100
}

case_wrapping() {
    fresh 512M
    made -J size=4
    mounted
    both writes 40 random 10
    both varmail 15
    churn 40 60
    # The journal has 1024 blocks.
    [ "$(counter journal_blocks)" -ge 5000 ] || { echo "the journal did not wrap often enough" >"$dir/out"; exit 1; }
    finished 1000
}

# The same few blocks repeatedly, in a journal so large that no checkpoint happens in between.
case_rewritten() {
    fresh 512M
    made -J size=128
    mounted
    cat >"$dir/rewrite.py" <<'PY'
import os, random, sys
numbers = random.Random(50)
head = numbers.randbytes(64)
files = [os.open(f"{root}/file", os.O_CREAT | os.O_WRONLY) for root in sys.argv[1:]]
for n in range(150):
    for block in range(32):
        content = (head if n % 2 else b"") + numbers.randbytes(4096)
        for file in files:
            os.pwrite(file, content[:4096], block * 4096)
    os.fsync(files[0])
PY
    python3 "$dir/rewrite.py" "$dir/mnt" "$dir/copy"
    finished 10
}

case_lazy_initialisation() {
    fresh 1G
    made -J size=8 -E lazy_itable_init=1,lazy_journal_init=1 -i 4096
    # The kernel zeroes the inode tables immediately, while files are written.
    mounted "$options,init_itable=0"
    churn 60 60
    finished 100
}

# Writes to the volume that bypass the journal while its server runs.
case_over_a_live_volume() {
    fresh 512M
    made -J size=8
    mounted
    churn 70 40
    head -c 65536 /dev/urandom | tee "$dir/copy/patched" >"$dir/mnt/patched"
    umount "$dir/mnt"
    # Direct writes to a file's home, to blocks whose older contents the journal still holds.
    local home n
    home=$(debugfs -R 'blocks /patched' "$loop" 2>/dev/null | tr -s ' ' '\n' | head -8)
    n=0
    for block in $home; do
        { head -c "$((n * 4096 + 64))" "$dir/copy/patched" | tail -c 64; head -c 4032 /dev/urandom; } >"$dir/block"
        dd if="$dir/block" of="$loop" bs=4096 seek="$block" oflag=direct conv=notrunc status=none
        dd if="$dir/block" of="$dir/copy/patched" bs=4096 seek="$n" conv=notrunc status=none
        n=$((n + 1))
    done
    [ "$n" -eq 8 ]
    repaired -D # directories made anew
    mounted
    churn 71 40
    same "$dir/mnt" "$dir/copy"
    umount "$dir/mnt"
    clean "$loop"
    # Other file systems over it: the journal is elsewhere, and the old one's place holds data now.
    local shape
    for shape in '-b 1024 -J size=8' '-b 4096 -J size=16 -O ^flex_bg' '-b 4096 -J size=4 -E packed_meta_blocks=1'; do
        rm -rf "$dir/copy"/* "$dir/copy/.prepared"
        # shellcheck disable=SC2086
        mkfs.ext4 -q -F $shape "$loop"
        mounted
        churn 72 40
        same "$dir/mnt" "$dir/copy"
        umount "$dir/mnt"
        clean "$loop"
    done
    mounted
    finished 100
}

case_resized() {
    fresh 512M
    mkfs.ext4 -q -F -b 4096 -J size=8 "$loop" 200M
    mounted
    churn 80 30
    if resize2fs "$loop" 400M >"$dir/out" 2>&1; then
        churn 81 30
        umount "$dir/mnt"
        repaired
    else
        # Needs CAP_SYS_RESOURCE, which many containers lack.
        grep -q 'Permission denied' "$dir/out"
        echo '   SKIP: resized while mounted: not permitted here; grown unmounted instead'
        umount "$dir/mnt"
        repaired
        resize2fs "$loop" 400M >"$dir/out" 2>&1
        mounted
        churn 81 30
        umount "$dir/mnt"
        repaired
    fi
    resize2fs "$loop" 160M >"$dir/out" 2>&1
    mounted
    churn 82 30
    umount "$dir/mnt"
    # The journal's old place becomes free space, and data.
    tune2fs -O ^has_journal "$loop" >/dev/null
    mounted defaults
    churn 83 30
    both image 20
    umount "$dir/mnt"
    repaired
    tune2fs -J size=4 "$loop" >/dev/null
    local before
    before=$(counter remapped_blocks)
    mounted
    churn 84 30
    finished "$((before + 100))"
}

# Creates loop devices of the partitions, without the kernel's own nodes for them, which containers often lack.
parted() {
    parts=()
    local start size
    while read -r start size; do
        parts+=("$(losetup --find --show --direct-io=on --offset "$((start * 512))" --sizelimit "$((size * 512))" "$dir/fuse/v")")
    done < <(sfdisk -J "$loop" | jq -r '.partitiontable.partitions[] | "\(.start) \(.size)"')
}

case_partitions() {
    fresh 1G
    printf 'label: gpt\nsize=300MiB\nsize=500MiB\n' | sfdisk -q --no-reread --no-tell-kernel "$loop"
    parted
    mkfs.ext4 -q -F -b 4096 -J size=4 "${parts[0]}"
    mkfs.ext4 -q -F -b 4096 -J size=16 "${parts[1]}"
    mount -o "$options" "${parts[0]}" "$dir/mnt"
    mount -o "$options" "${parts[1]}" "$dir/mnt2"
    # The same contents in both: each journal holds what is written to the other's homes.
    churn 90 60 "$dir/copy2" "$dir/mnt2" &
    load=$!
    churn 90 60
    wait "$load"
    load=''
    umount "$dir/mnt" "$dir/mnt2"
    clean "${parts[0]}"
    clean "${parts[1]}"
    local remapped
    remapped=$(counter remapped_blocks)
    down
    up
    parted
    mount -o ro "${parts[0]}" "$dir/mnt"
    mount -o ro "${parts[1]}" "$dir/mnt2"
    same "$dir/mnt" "$dir/copy"
    same "$dir/mnt2" "$dir/copy2"
    umount "$dir/mnt" "$dir/mnt2"
    down
    [ "$remapped" -ge 1000 ] || { echo "$remapped blocks remapped" >"$dir/out"; exit 1; }
    printf '   %s blocks remapped\n' "$remapped"
}

case_switched_under_load() {
    fresh 512M
    made -J size=4
    mounted
    local n=0 seed=100 rules=(write-once={off,on,descriptor} "write-once=paper,hash=head64" "write-once=on,hash=sha1")
    # On a busy machine one load may end before there were enough switches.
    while [ "$n" -lt 10 ] && [ "$seed" -lt 110 ]; do
        churn "$((seed++))" 200 &
        load=$!
        while kill -0 "$load" 2>/dev/null; do
            n=$((n + 1))
            "$VELLUM" set "$dir/volume" --research "${rules[n % ${#rules[@]}]}" >"$dir/switch" || { cat "$dir/switch"; exit 1; }
            sleep 0.1
        done
        wait "$load"
        load=''
    done
    [ "$n" -ge 10 ] || { echo "switched only $n times" >"$dir/out"; exit 1; }
    finished 100
}

# kill -9 at any time, life after life: each slot holds the version that was fsynced last, or a later one.
case_killed() {
    cat >"$dir/slots.py" <<'PY'
import hashlib, os, sys
root, log, life, work = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
SLOTS = 96
def content(slot, version):
    # Its first 64 bytes are the same in all versions, and every fourth slot begins with jbd2's magic.
    head = bytes.fromhex("c03b3998") * 16 if slot % 4 == 0 else bytes([slot]) * 64
    return head + b"%08d %08d" % (slot, version) + hashlib.shake_128(b"%d-%d" % (slot, version)).digest(4096 - 64 - 17)
durable = {}
for line in open(log):
    slot, version = map(int, line.split())
    durable[slot] = version
if work == "write":
    done = open(log, "a", buffering=1)
    file = os.open(f"{root}/slots", os.O_CREAT | os.O_WRONLY)
    n = life * 1_000_000
    while True:
        group = [(n * 7 + k * 13) % SLOTS for k in range(4)]
        for slot in group:
            os.pwrite(file, content(slot, n), slot * 4096)
        os.fsync(file)
        if os.path.exists(os.path.dirname(log) + "/killed"):
            continue
        done.write("".join(f"{slot} {n}\n" for slot in group))
        n += 1
bad = 0
file = os.open(f"{root}/slots", os.O_RDONLY)
for slot, version in durable.items():
    block = os.pread(file, 4096, slot * 4096)
    try:
        here = int(block[73:81])
    except ValueError:
        here = -1
    if here < version or block != content(slot, here):
        bad += 1
        print(f"slot {slot}: fsynced {version}, there is {here}")
print(len(durable), "slots,", bad, "lost or wrong")
sys.exit(bad > 0)
PY
    fresh 512M
    : >"$dir/acknowledged"
    made -J size=4
    local life remapped=0
    for life in 1 2 3 4 5; do
        mounted
        [ "$life" -eq 1 ] || python3 "$dir/slots.py" "$dir/mnt" "$dir/acknowledged" "$life" read >"$dir/out"
        python3 "$dir/slots.py" "$dir/mnt" "$dir/acknowledged" "$life" write 2>/dev/null &
        load=$!
        sleep "1.$((RANDOM % 10))"
        remapped=$((remapped + $(counter remapped_blocks)))
        crash
        let_go
        sound
        up
        # The journal is replayed by the kernel and by e2fsck in turn: it writes home what the journal holds.
        [ "$((life % 2))" -eq 0 ] || repaired
    done
    mounted
    python3 "$dir/slots.py" "$dir/mnt" "$dir/acknowledged" 0 read >"$dir/out"
    local kept
    kept=$(cat "$dir/out")
    umount "$dir/mnt"
    clean "$loop"
    down
    printf '   %s; %s blocks remapped before the crashes\n' "$kept" "$remapped"
    [ "$remapped" -gt 0 ]
}

# The journal's copy is damaged on the medium after home was mapped to it: reads of both fail, neither returns wrong bytes, and everything
# else is served.
case_damaged() {
    fresh 256M
    made -J size=8
    mounted
    python3 - "$dir/mnt" <<'PY'
import os, sys
for name in ["struck", "spared"]:
    with open(f"{sys.argv[1]}/{name}", "wb") as file:
        for n in range(8):
            file.write(f"{name} {n} ".encode() * 400 + os.urandom(4096 - 400 * (len(name) + 3)))
        os.fsync(file.fileno())
PY
    cp "$dir/mnt/spared" "$dir/copy/spared"
    umount "$dir/mnt"
    local home at journal first blocks damaged
    home=$(debugfs -R 'bmap struck 3' "$loop" 2>/dev/null)
    first=$(debugfs -R 'bmap <8> 0' "$loop" 2>/dev/null)
    blocks=$(($(debugfs -R 'stat <8>' "$loop" 2>/dev/null | sed -n 's/^User.*Size: \([0-9]*\).*/\1/p') / 4096))
    down
    at=$(place_of "$home" 1 | cut -d' ' -f2)
    journal=$(place_of "$first" "$blocks" | awk -v at="$at" '$2 == at { print $1; exit }')
    if [ -z "$at" ] || [ -z "$journal" ]; then
        echo "block $home is at '$at', and no journal block is" >"$dir/out"
        exit 1
    fi
    printf damage | dd of="$dir/volume" bs=1 seek=$((at * 4096 + 1000)) conv=notrunc status=none
    up
    mounted ro
    cmp "$dir/mnt/spared" "$dir/copy/spared"
    for damaged in "$home" "$journal"; do
        if dd if="$loop" bs=4096 skip="$damaged" count=1 iflag=direct of=/dev/null 2>"$dir/out"; then
            echo "block $damaged is damaged, and was read" >"$dir/out"
            exit 1
        fi
        grep -q 'Input/output error' "$dir/out" || exit 1
    done
    ! cat "$dir/mnt/struck" >/dev/null 2>&1 || { echo 'a damaged file was read' >"$dir/out"; exit 1; }
    dd if="$loop" bs=4096 skip="$((home + 1))" count=1 iflag=direct of=/dev/null status=none
    [ "$(counter corrupt_blocks)" -ge 2 ] || { echo 'no damage was counted' >"$dir/out"; exit 1; }
    umount "$dir/mnt"
    finish
    ! sound 2>"$dir/log" || { echo 'check found no damage' >"$dir/out"; exit 1; }
    printf '   blocks %s and %s share block %s of the medium: EIO for both\n' "$home" "$journal" "$at"
}

# Where blocks of an unserved volume are on the medium: a line each, as `LBA PLACE`.
place_of() { # LBA COUNT
    "$VELLUM" dump "$dir/volume" map --from "$1" --count "$2" |
        awk '{ for (n = 0; n < $2; n++) print $1 + n, $NF + n }'
}

all=(misleading not_journaled wrapping rewritten lazy_initialisation over_a_live_volume resized partitions hashes
    switched_under_load killed damaged)
read -ra wanted <<<"${CASES:-${all[*]}}"
begun=$SECONDS ended=0
for current in "${wanted[@]}"; do
    printf '%3d s  %s\n' "$((SECONDS - begun))" "$current"
    "case_$current"
    ended=$((ended + 1))
done
# An arithmetic error leaves a loop without ending a script.
[ "$ended" -eq "${#wanted[@]}" ]
echo "write_once: passed in $((SECONDS - begun)) s"
