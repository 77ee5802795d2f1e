#!/bin/bash
# Runs in each boot of the guest of tests/root.sh, controlled by the kernel argument test=. A file is reported on the console once its fsync
# has ended; after a power cut the next boot must have it.
exec >/dev/ttyS0 2>&1
echo 1 >/proc/sys/kernel/printk
word() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p"; }
say() { echo "root: $*"; }
fail() {
    say "FAIL: $*"
    journalctl -b --no-pager | tail -40
    cat /run/vellum/*.log /run/initramfs/fsck.log
    echo o >/proc/sysrq-trigger
    sleep 60
}
content() { seq "$1" $(($1 + 4000)); }

systemctl is-system-running --wait >/dev/null
mounted=$(dmesg | sed -n 's/^\[ *\([0-9.]*\)\] EXT4-fs (\(ublkb0\|vda\)): mounted filesystem.*/\1 s/p' | head -1)
# Written by no one, so that it is in each boot's favour or none's.
up() { say "up mounted after ${mounted:-?}, $(systemd-analyze time | head -1) done"; }
[ -z "$(systemctl --failed --no-legend)" ] || fail "$(systemctl --failed --no-legend)"
complaints=$(dmesg | grep -iE 'ext4-fs.*(error|warning)|I/O error|blocked for more')
[ -z "$complaints" ] || fail "$complaints"
[ ! -s /run/initramfs/fsck.log ] || ! grep -qiE 'UNEXPECTED|FIXED|corrected' /run/initramfs/fsck.log || fail "$(cat /run/initramfs/fsck.log)"
if [ "$(word test)" = plain ]; then
    up
    sync
    sleep 1 # for the console
    systemctl poweroff
    exit 0
fi

[ "$(findmnt -n -o SOURCE /)" = /dev/ublkb0 ] || fail "the root file system is on $(findmnt -n -o SOURCE /)"
[ -e /dev/disk/by-uuid/6e1f2a0c-27b5-4f0e-9d46-5a3c0e8b7711 ] || fail 'it is not found by its UUID'
server=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' /run/vellum/*.json)
[ "$(head -c1 /proc/"$server"/cmdline)" = @ ] || fail 'a shutdown kills the server'
grep -q '^VmLck:.*[1-9][0-9]* kB' /proc/"$server"/status || fail 'the server may be swapped out'
for thread in /proc/"$server"/task/*; do
    # PF_MEMALLOC_NOIO, by PR_SET_IO_FLUSHER.
    flags=$(cut -d')' -f2 "$thread/stat" | cut -d' ' -f8)
    [ $((flags & 0x80000)) -ne 0 ] || fail "$thread may wait for itself when it is short of memory ($flags)"
done
grep -qvE '^ready: ' /run/vellum/*.log && fail "the server says: $(cat /run/vellum/*.log)"
synced=$(word test.synced)
for ((n = 1; n <= synced; n++)); do
    content "$n" | cmp -s - "/var/lib/test/$n" || fail "/var/lib/test/$n was synced, and is lost or wrong"
done
up

if [ "$(word test)" = cut ]; then
    mkdir -p /var/lib/test
    sync -f /var/lib/test
    for ((n = synced + 1; ; n++)); do
        content "$n" | dd of="/var/lib/test/$n" bs=64k conv=fsync status=none || fail "write $n"
        sync /var/lib/test
        say "synced $n "
        content 9 >/var/lib/torn-$((n % 10))
    done
fi

# What a user does with the volume that holds the system.
volume=/dev/disk/by-id/virtio-disk
vellum list | grep -q ublkb0 || fail "list: $(vellum list)"
vellum stats $volume >/tmp/told 2>&1 || fail "stats: $(cat /tmp/told)"
vellum get $volume >/tmp/told 2>&1 || fail "get: $(cat /tmp/told)"
vellum set $volume label=system >/tmp/told 2>&1 || fail "set: $(cat /tmp/told)"
vellum snapshot $volume before >/tmp/told 2>&1 || fail "snapshot: $(cat /tmp/told)"
vellum snapshots $volume | grep -q before || fail 'snapshots'
vellum boot list | grep -q '^system: ' || fail "boot list: $(vellum boot list)"
for ways in "detach $volume" 'detach /' 'boot stop system'; do
    # shellcheck disable=SC2086 # words
    ! vellum $ways >/tmp/told 2>&1 || fail "$ways: done"
    grep -q 'root file system is on' /tmp/told || fail "$ways: $(cat /tmp/told)"
done
vellum boot stop || fail 'boot stop of all others'
touch /still-writable || fail 'a refused detach has made the root file system read-only'
say "server $(grep -E '^Vm(RSS|Lck|Swap)' /proc/"$server"/status | tr -s '\t \n' ' ')"
content 5 >/var/lib/unsynced
sleep 1
systemctl poweroff
