#!/bin/sh
# Runs in the guest: dedup_guest.sh SYSTEM WORKLOAD COPIES FILE_MIB UNIQUE_MIB. One system, one workload on /dev/vda.
# Prints `name` and `result BYTES WRITTEN SPACE MEMORY_MIB SECONDS`.
set -e
system=$1 workload=$2 copies=$3 file=$4 unique=$5
disk=/dev/vda
mnt=/mnt/test

fail() {
    echo "FAIL ($system, $workload): $*"
    dmesg | tail -20
    exit 1
}
available_kib() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo
}
# 512-byte sectors written to the disk.
sectors() { sync; awk '{ print $7 }' /sys/block/vda/stat; }
stat() { vellum stats $disk --json | grep -o "\"$1\":[0-9][0-9]*" | sed -n '1s/.*://p'; }
vdo() { dmsetup message vdo 0 stats | tr ',' '\n' | sed -n "s/^.*$1 *: *\([0-9]*\).*/\1/p" | head -1; }
# Blocks of 4 KiB in use.
taken() {
    case $system in
        plain) df -k $mnt | awk 'END { print $3 / 4 }' ;;
        vdo) echo $(($(vdo dataBlocksUsed))) ;;
        *) stat live_blocks ;;
    esac
}

mkdir -p $mnt
before_kib=$(available_kib)
case $system in
    plain) name='ext4 on a plain disk' device=$disk ;;
    vellum-*)
        name="ext4 on Vellum, dedup=${system#vellum-}"
        vellum create $disk --size 3G >/dev/null || fail create
        vellum attach $disk --via ublk --research "dedup=${system#vellum-}" >/tmp/attached || fail attach
        device=$(cut -d' ' -f1 /tmp/attached)
        ;;
    vdo)
        name='ext4 on dm-vdo'
        for module in dm-mod dm-bufio lz4_compress dm-vdo; do insmod /modules/$module.ko 2>/dev/null || true; done
        vdoformat --force --uds-memory-size=0.25 --slab-bits=15 --logical-size=3G $disk >/tmp/formatted 2>&1 || { cat /tmp/formatted; fail vdoformat; }
        blocks=$(($(cat /sys/block/vda/size) / 8))
        dmsetup create vdo --noudevsync --table "0 $((3 * 1024 * 2048)) vdo V4 $disk $blocks 4096 32768 16380" || fail dmsetup
        [ -e /dev/mapper/vdo ] || dmsetup mknodes
        device=/dev/mapper/vdo
        ;;
esac
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$device" || fail mkfs
mount -t ext4 -o data=ordered "$device" $mnt || fail mount
dd if=/dev/urandom of=/tmp/one bs=1M count="$file" 2>/dev/null
sync
written=$(sectors)
space=$(taken)
begun=$(cut -d' ' -f1 /proc/uptime)
if [ "$workload" = copies ]; then
    copy=0
    while [ $copy -lt "$copies" ]; do
        cp /tmp/one $mnt/$copy
        sync
        copy=$((copy + 1))
    done
    bytes=$((copies * file * 1048576))
else
    dd if=/dev/urandom of=$mnt/other bs=1M count="$unique" conv=fsync 2>/dev/null
    bytes=$((unique * 1048576))
fi
ended=$(cut -d' ' -f1 /proc/uptime)
sync
space=$(($(taken) - space))
rm /tmp/one
memory=$((before_kib - $(available_kib)))
umount $mnt
written=$(($(sectors) - written))
echo "name $name"
echo "result $bytes $((written * 512)) $((space * 4096)) $((memory / 1024)) $(awk "BEGIN { print $ended - $begun }")"
