#!/bin/sh
# Runs in the guest: journal_guest_run.sh CONFIGURATION SCALE WORKLOAD... One configuration, one workload on /dev/vda.
# Prints `result WRITTEN FLUSHES HOST_BLOCKS HOMES REMAPPED COLLIDED UNEQUAL`: bytes written to the disk, flushes sent to it, and the
# volume's counters; `-` without a volume.
set -e
configuration=$1 scale=$2 workload=$3
shift 3
disk=/dev/vda
mnt=/mnt/test

fail() {
    echo "FAIL ($configuration, $workload): $*"
    dmesg | tail -20
    exit 1
}
run() { PYTHONHOME=$(cat /workloads/prefix) PYTHONDONTWRITEBYTECODE=1 /sbin/python3* "/workloads/$workload.py" "$@"; }
sectors() { awk '{ print $7 }' /sys/block/vda/stat; }
flushes() { awk '{ print $16 }' /sys/block/vda/stat; }
stat() { vellum stats $disk --json | grep -o "\"$1\":[0-9][0-9]*" | sed -n '1s/.*://p'; }
counted() {
    for counter in host_blocks_written home_writes remapped_blocks collided_blocks compared_unequal; do
        case $configuration in
            *-*) stat $counter ;;
            *) echo 0 ;;
        esac
    done
}

mkdir -p $mnt /tmp/sources
device=$disk options=data=journal
case $configuration in
    journal) ;;
    ordered) options=data=ordered ;;
    *-*)
        vellum create $disk --size 700M >/dev/null || fail create
        vellum attach $disk --via "${configuration#*-}" --with "compress=off,delta=off,write-once=${configuration%-*},replay=${configuration%-*},zero=off" >/tmp/attached || fail attach
        device=$(cut -d' ' -f1 /tmp/attached)
        options=data=journal,journal_async_commit
        ;;
esac
mkfs.ext4 -q -b 4096 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 "$device" || fail mkfs
mount -t ext4 -o $options "$device" $mnt || fail mount
run --prepare --sources /tmp/sources $mnt "$scale" "$@" || fail prepare
umount $mnt
sync
before=$(sectors) flushed=$(flushes)
counted >/tmp/before
mount -t ext4 -o $options "$device" $mnt || fail mount
run --sources /tmp/sources $mnt "$scale" "$@" || fail run
umount $mnt
sync
written=$((($(sectors) - before) * 512)) flushed=$(($(flushes) - flushed))
counted >/tmp/after
e2fsck -fn "$device" >/tmp/fsck 2>&1 || { cat /tmp/fsck; fail e2fsck; }
# shellcheck disable=SC2046 # words
echo result $written $flushed $(paste /tmp/before /tmp/after | awk '{ print $2 - $1 }')
