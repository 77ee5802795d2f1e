#!/bin/sh
# Runs in the guest: write_once.sh WAY. The same writes with write-once journaling and without, over a real block driver; the unmount is
# part of the window. Checkpoints must be remapped and must not be written.
set -e
via=$1
disk=/dev/vda
at=/mnt/vellum

fail() {
    echo "FAIL (write-once by $via): $*"
    dmesg | tail -20
    exit 1
}
# A statistic from a group: several groups may have the same name.
stat() {
    vellum stats $disk --json | sed -n "s/.*\"$1\":{\([^{}]*\).*/\1/p" | grep -o "\"$2\":[0-9][0-9]*" | sed 's/.*://'
}

# Sets `written` and `remapped`, in bytes and blocks.
measure() {
    vellum create --force $disk --size 300M >/dev/null
    vellum attach $disk --via "$via" --mkfs --mount $at --research "write-once=$1,zero=off" >/dev/null || fail "attach"
    written=$(stat medium written_bytes)
    host=$(stat core host_blocks_written)
    homes=$(stat core home_writes)
    remapped=$(stat core remapped_blocks)
    syncs=$(($(stat medium syncs) + $(stat medium durable_writes)))
    commits=$(stat write_once commits)
    flushes=$(stat flushes received)
    number=0
    while [ $number -lt 80 ]; do
        dd if=/tmp/random of=$at/$((number % 20)) bs=64k count=4 skip=$((number % 60)) conv=fsync 2>/dev/null ||
            fail "write $number"
        number=$((number + 1))
    done
    umount $at || fail "umount"
    vellum stats $disk --json >/tmp/stats
    written=$(($(stat medium written_bytes) - written))
    host=$(($(stat core host_blocks_written) - host))
    homes=$(($(stat core home_writes) - homes))
    remapped=$(($(stat core remapped_blocks) - remapped))
    syncs=$(($(stat medium syncs) + $(stat medium durable_writes) - syncs))
    commits=$(($(stat write_once commits) - commits))
    flushes=$(($(stat flushes received) - flushes))
    echo "$via, write-once=$1: $host blocks written by the host, $((written / 4096)) by us," \
        "$commits commits, $flushes flushes, $syncs syncs of the medium," \
        "$homes to homes, $remapped remapped, $(stat core collided_blocks) collided, $(stat core missing_blocks) missing," \
        "$(stat core compared_unequal) unequal"
    # The remapped blocks have the contents that were written.
    vellum detach $disk >/dev/null || fail "detach"
    vellum check $disk >/tmp/check 2>&1 || { cat /tmp/check; fail "check"; }
    vellum attach $disk --via "$via" --mount $at >/dev/null || fail "attach again"
    number=60
    while [ $number -lt 80 ]; do
        dd if=/tmp/random bs=64k count=4 skip=$((number % 60)) 2>/dev/null | cmp -s - $at/$((number % 20)) ||
            fail "file $((number % 20)) is not what was written"
        number=$((number + 1))
    done
    vellum detach $disk >/dev/null || fail "detach"
}

mkdir -p $at
dd if=/dev/urandom of=/tmp/random bs=64k count=64 2>/dev/null
measure off
without=$written
measure on
[ "$remapped" -gt 0 ] || fail "nothing was remapped"
[ $((remapped * 100)) -ge $((homes * 99)) ] || fail "$remapped of $homes checkpoint writes were remapped"
[ $((written * 100)) -le $((without * 60)) ] || fail "$written bytes written; without it, $without"
echo "$via: passed, $((written * 100 / without))% of the bytes"
