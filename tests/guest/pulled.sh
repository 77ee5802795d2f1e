#!/bin/sh
# Runs in the guest: pulled.sh WAY. The drive of a volume is pulled while it is mounted: its path still leads to its server, which reports
# the error; nothing waits for the missing drive; and what was synced is there when it is back.
set -e
via=$1
disk=/dev/nvme0n1
at=/mnt/vellum

fail() {
    echo "FAIL ($via): $*"
    cat /tmp/said /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -20
    exit 1
}

modprobe nvme
for _ in $(seq 60); do [ -e $disk ] || sleep 1; done
mkdir -p $at /var/log /var/tmp
vellum create $disk >/dev/null
vellum attach $disk --via "$via" --mkfs --mount $at >/dev/null || fail "attach"
dd if=/dev/urandom of=/tmp/kept bs=1M count=4 2>/dev/null
cp /tmp/kept $at/kept
sync
vellum health $disk >/tmp/said || fail "it was not well before"
echo 1 >/sys/class/nvme/nvme0/device/remove
sleep 1
[ ! -e $disk ] || fail "the drive is still there"
vellum health $disk >/tmp/said && fail "it is called well"
grep -q "GONE" /tmp/said || fail "health does not say what is wrong"
! dd if=/tmp/kept of=$at/other bs=1M conv=fsync 2>/dev/null || fail "an fsync without a drive"
vellum health $disk >/tmp/said && fail "it is called well, later"
grep -q "POISONED" /tmp/said || fail "it waits for a drive that is gone"
vellum stats $disk >/tmp/said || fail "no statistics"
vellum detach $disk >/tmp/said 2>&1 || fail "detach"
! pidof vellum >/dev/null || fail "the server still runs"
echo 1 >/sys/bus/pci/rescan
for _ in $(seq 60); do [ -e $disk ] || sleep 1; done
vellum attach $disk --via "$via" --mount $at >/tmp/said 2>&1 || fail "attach when it is back"
cmp -s /tmp/kept $at/kept || fail "what was synced is lost"
vellum detach $disk >/dev/null || fail "detach at the end"
vellum check $disk >/tmp/said 2>&1 || fail "check"
echo "$via: passed"
