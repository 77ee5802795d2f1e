#!/usr/bin/env bash
# A volume with a real ext4 shrinks: its file system first (resize2fs -M), then what that left is discarded, then the volume, which is at
# rest or attached. In each life but the first the server, or the command at rest, is killed (kill -9) at any moment of that. The volume
# then has the old size or the new one, no check complains, and the same command completes it. Every file is there, a snapshot that keeps
# something behind the end stops it, and the volume grows again, with its file system. Then its file becomes shorter, killed as well. LIVES=n for more than a few, SIZE sets the size;
# needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
# In its own mount namespace: a namespace created meanwhile would keep our mounts and their devices.
if [ "${1:-}" != --own ] && unshare -m true 2>/dev/null; then exec unshare -m tests/shrink.sh --own; fi
. tests/lib/begin.sh
LIVES=${LIVES:-6}
SIZE=${SIZE:-1G}
RANDOM=$((${SEED:=$$} % 32768))
needs mkfs.ext4 e2fsck resize2fs dumpe2fs blkdiscard blockdev jq

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-shrink.XXXXXX")
mkdir "$dir/mnt"
volume=$dir/volume current='the beginning'
end() {
    local status=$?
    set +e
    # A device that this has open is not detached.
    exec 5>&-
    [ "$status" -eq 0 ] || { echo "shrink: FAILED in $current, seed $SEED"; tail -n 20 "$dir/out" "$dir/shrink"; }
    for each in "$volume" "$dir/start"; do timeout 30 "$VELLUM" detach "$each" >/dev/null 2>&1; done
    rm -rf --one-file-system "$dir"
}
trap end EXIT
trap 'exit 130' INT TERM
v() { timeout 120 "$VELLUM" "$@" >"$dir/out" 2>&1; }
wrong() {
    echo "shrink: $*"
    exit 1
}
server() { "$VELLUM" list --json | jq -r --arg path "$volume" '.[] | select(.path == $path) | .pid'; }
size() { "$VELLUM" info "$volume" --json | jq .size; }
now() { date +%s%N; }
large=$(numfmt --from=iec "$SIZE")
sums() { (cd "$dir/mnt" && find . -type f -not -path './lost+found/*' -print0 | sort -z | xargs -0 sha256sum); }
# Refused, with these words.
refused() {
    if v shrink "$volume" --size "$small"; then wrong "it has shrunk, and should not have ($1)"; fi
    grep -q "$1" "$dir/out" || wrong "it does not say: $1"
    [ "$(size)" -eq "$large" ] || wrong 'it was refused, and has shrunk'
}

# The start of each life: files, of which half are deleted, so that the file system has blocks to move.
start=$dir/start
volume=$start
"$VELLUM" create "$start" --size "$SIZE" >/dev/null
v attach "$start" --via fuse --mkfs --mount "$dir/mnt"
for number in $(seq 60); do head -c $((number * 40000)) /dev/urandom >"$dir/mnt/$number"; done
# Far behind, where the file system will not reach.
fallocate -l $((large / 2)) "$dir/mnt/large"
head -c 4M /dev/urandom >"$dir/mnt/behind"
for number in $(seq 1 2 60); do rm "$dir/mnt/$number"; done
sums | grep -v ' ./large$' >"$dir/sums"
rm "$dir/mnt/large"
v detach "$start"

holds() {
    v attach "$volume" --via fuse --mount "$dir/mnt"
    sums >"$dir/found"
    cmp -s "$dir/sums" "$dir/found" || wrong 'its files are not what they were'
    umount "$dir/mnt"
    v detach "$volume"
}

old=0 new=0 took=100000
for ((life = 0; life <= LIVES; life++)); do
    current="life $life"
    volume=$dir/volume
    rm -f "$volume"
    cp --sparse=always "$start" "$volume"
    v attach "$volume" --via fuse
    device=$(cat "$dir/out")
    small=$((large / 4))
    refused 'ext4'
    v snapshot "$volume" before
    e2fsck -f -p "$device" >"$dir/out" 2>&1
    resize2fs -M "$device" >"$dir/out" 2>&1
    blocks=$(dumpe2fs -h "$device" 2>/dev/null | sed -n 's/^Block count: *//p')
    # The end of the file system, to the block.
    small=$((blocks * 4096))
    [ "$small" -lt "$large" ] || wrong 'resize2fs has not made it smaller'
    # What it left behind: if it left nothing there, a block that somebody wrote.
    printf x | dd of="$device" bs=1 seek=$((large - 4096)) conv=notrunc,fsync status=none
    refused 'lie behind that end'
    blkdiscard -f --offset "$small" "$device" >"$dir/out" 2>&1
    if [ $((life % 2)) -eq 0 ]; then
        # The snapshot has what the volume had there.
        refused '`before`'
    fi
    v delete "$volume" before
    at_rest=$((life / 2 % 2))
    [ "$at_rest" -eq 0 ] || v detach "$volume"
    if [ "$life" -gt 0 ]; then
        pid=$(server)
        "$VELLUM" shrink "$volume" --size "$small" >"$dir/shrink" 2>&1 &
        shrinking=$!
        moment=$((took * (RANDOM % 1200) / 1000))
        sleep "$((moment / 1000000)).$(printf %06d $((moment % 1000000)))"
        kill -KILL "${pid:-$shrinking}" 2>/dev/null || true
        wait "$shrinking" 2>/dev/null || true
        [ "$at_rest" -eq 1 ] || v detach "$volume"
        v check "$volume"
        case $(size) in
            "$large") old=$((old + 1)) ;;
            "$small") new=$((new + 1)) ;;
            *) wrong "it is $(size) bytes large" ;;
        esac
        holds
        [ "$at_rest" -eq 1 ] || v attach "$volume" --via fuse
    fi
    began=$(now)
    v shrink "$volume" --size "$small"
    took=$((($(now) - began) / 1000))
    [ "$(size)" -eq "$small" ] || wrong "it is $(size) bytes large"
    if [ "$at_rest" -eq 0 ]; then
        device=$("$VELLUM" list --json | jq -r --arg path "$volume" '.[] | select(.path == $path) | .device')
        [ "$(blockdev --getsize64 "$device")" -eq "$small" ] || wrong "$device is $(blockdev --getsize64 "$device") bytes large"
        e2fsck -f -n "$device" >"$dir/out" 2>&1
        v detach "$volume"
    fi
    v check "$volume"
    holds
    v grow "$volume" --size "$SIZE" --fs
    [ "$(size)" -eq "$large" ] || wrong "it is $(size) bytes large"
    holds
    v attach "$volume" --via fuse
    e2fsck -f -n "$(cat "$dir/out")" >"$dir/out" 2>&1
    v detach "$volume"
    v check "$volume"
done
# An ext4 that was not unmounted may have another size when its journal is replayed.
current='an unclean file system'
volume=$dir/unclean
small=$((large / 4))
"$VELLUM" create "$volume" --size "$SIZE" >/dev/null
v attach "$volume" --via fuse
mkfs.ext4 -q -b 4096 "$(cat "$dir/out")" 64M
mount "$(cat "$dir/out")" "$dir/mnt"
cp "$dir/sums" "$dir/mnt"
sync -f "$dir/mnt"
kill -KILL "$(server)"
v detach "$volume"
refused 'was not unmounted'
v attach "$volume" --via fuse
device=$(cat "$dir/out")
refused 'was not unmounted'
mount "$device" "$dir/mnt"
umount "$dir/mnt"
# A block that the kernel has in its page cache alone: the device stays open, for the last close writes it.
exec 5<>"$device"
printf x | dd of="$device" bs=1 seek=$((large - 4096)) conv=notrunc status=none
refused 'lie behind that end'
exec 5>&-
blkdiscard -f --offset "$small" "$device" >"$dir/out" 2>&1
v shrink "$volume" --size "$small"
v detach "$volume"

# One size after the other right after the mount, under a file system that is written to: no request may be refused.
for ((trial = 0; trial < 5 * LIVES; trial++)); do
    current="trial $trial"
    volume=$dir/quick
    "$VELLUM" create "$volume" --size 400M --force >/dev/null
    v attach "$volume" --via fuse
    device=$(cat "$dir/out")
    mkfs.ext4 -q -b 4096 "$device" 128M
    mount "$device" "$dir/mnt"
    (while [ ! -e "$dir/enough" ]; do head -c 3M /dev/urandom >"$dir/mnt/f" && sync -f "$dir/mnt" || touch "$dir/enough" "$dir/refused"; done) 2>/dev/null &
    writer=$!
    for _ in 1 2 3; do
        v shrink "$volume" --size 200M
        v grow "$volume" --size 400M
    done
    touch "$dir/enough"
    wait "$writer"
    [ ! -e "$dir/refused" ] || wrong 'a write failed while the volume changed its size'
    rm "$dir/enough"
    umount "$dir/mnt"
    v detach "$volume"
done

# A shorter medium. What is on the volume was written last, behind much that is gone, so it lies at the end of the file. The command is
# killed at any moment; the file has the old length or the new one, and the same command completes it.
kept=0 cut=0 lasted=100000
start=$dir/tail
volume=$start
current='the medium'
"$VELLUM" create "$volume" --size 300M >/dev/null
v attach "$volume" --via fuse
device=$(cat "$dir/out")
mkfs.ext4 -q -b 4096 "$device" 300M
mount "$device" "$dir/mnt"
head -c 220M /dev/urandom >"$dir/mnt/gone"
sync -f "$dir/mnt"
for number in $(seq 30); do head -c $((number * 50000)) /dev/urandom >"$dir/mnt/$number"; done
sync -f "$dir/mnt"
rm "$dir/mnt/gone"
sums >"$dir/sums"
umount "$dir/mnt"
e2fsck -f -p "$device" >"$dir/out" 2>&1
resize2fs -M "$device" >"$dir/out" 2>&1
blocks=$(dumpe2fs -h "$device" 2>/dev/null | sed -n 's/^Block count: *//p')
small=$((blocks * 4096))
blkdiscard -f --offset "$small" "$device" >"$dir/out" 2>&1
v snapshot "$volume" before
v detach "$volume"
long=$(stat -c %s "$volume")
short=$(((small * 3 / 2 + (24 << 20)) / 4096 * 4096))
[ "$short" -lt "$((long * 2 / 3))" ] || wrong "the file system takes $small bytes"
if v shrink "$volume" --size "$small" --medium-size 8M; then wrong 'a medium of 8 MiB is called enough'; fi
grep -q 'needs at least' "$dir/out" || wrong 'it does not say what is enough'
for ((life = 0; life <= LIVES; life++)); do
    current="medium $life"
    volume=$dir/volume
    rm -f "$volume"
    cp --sparse=always "$start" "$volume"
    if [ "$life" -gt 0 ]; then
        "$VELLUM" shrink "$volume" --size "$small" --medium-size "$short" >"$dir/shrink" 2>&1 &
        shrinking=$!
        moment=$((lasted * (RANDOM % 1100) / 1000))
        sleep "$((moment / 1000000)).$(printf %06d $((moment % 1000000)))"
        kill -KILL "$shrinking" 2>/dev/null || true
        wait "$shrinking" 2>/dev/null || true
        v check "$volume"
        case $(stat -c %s "$volume") in
            "$long") kept=$((kept + 1)) ;;
            "$short") cut=$((cut + 1)) ;;
            *) wrong "its file is $(stat -c %s "$volume") bytes long" ;;
        esac
        holds
    fi
    began=$(now)
    v shrink "$volume" --size "$small" --medium-size "$short"
    lasted=$((($(now) - began) / 1000))
    [ "$(stat -c %s "$volume")" -eq "$short" ] || wrong "its file is $(stat -c %s "$volume") bytes long"
    [ "$("$VELLUM" info "$volume" --json | jq .medium_size)" -eq "$short" ] || wrong 'its superblock does not know that'
    v check "$volume"
    holds
    v attach "$volume@before" --via fuse --mount "$dir/mnt"
    sums >"$dir/found"
    cmp -s "$dir/sums" "$dir/found" || wrong 'the snapshot has lost something'
    umount "$dir/mnt"
    v detach "$volume@before"
    v grow "$volume" --size 300M --fs
    holds
    v check "$volume"
done

echo "shrink: a medium of $((long >> 20)) MiB became $((short >> 20)) MiB short; when $LIVES tries were killed, $kept had the old length," \
    "$cut the new one; the last one took $((lasted / 1000)) ms"
echo "shrink: passed, $LIVES lives killed, from $SIZE to $((small >> 20)) MiB, the last one took $((took / 1000)) ms; when they ended, $old had the old size," \
    "$new the new one"
