#!/bin/sh
# Runs in the guest: oom.sh WAY. The kernel kills the server of a mounted volume because its control group is out of memory. A writer gets
# an error and does not wait; and what was synced is there when the volume is attached again.
set -e
via=$1
at=/mnt/vellum
group=/sys/fs/cgroup/few

fail() {
    echo "FAIL ($via): $*"
    cat /tmp/said /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -30
    exit 1
}

mkdir -p $at /var/log /var/tmp
mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || { echo "SKIP: oom: no memory control"; exit 0; }
mkdir $group
vellum create /dev/vda >/dev/null
sh -c "echo \$\$ >$group/cgroup.procs; exec vellum attach /dev/vda --via $via --mkfs --mount $at" >/dev/null || fail "attach"
server=$(pidof vellum) || fail "no server"
for n in 1 2 3 4 5 6 7 8; do
    dd if=/dev/urandom of=/tmp/$n bs=64k count=4 2>/dev/null
    dd if=/tmp/$n of=$at/$n bs=64k conv=fsync 2>/dev/null || fail "a sync before"
done
echo $(($(cat $group/memory.current) + 256 * 1024)) >$group/memory.max
# It needs memory for written blocks, until it has none left.
began=$(date +%s)
timeout 120 dd if=/dev/urandom of=$at/more bs=1M count=300 conv=fsync 2>/tmp/said && fail "it was not ended: $(cat $group/memory.current)"
took=$(($(date +%s) - began))
grep -q '^oom_kill [1-9]' $group/memory.events || fail "it was not the kernel: $(cat $group/memory.events)"
[ "$took" -lt 60 ] || fail "whoever wrote waited $took s"
for _ in 1 2 3 4 5 6 7 8 9 10; do [ ! -e /proc/"$server"/exe ] || sleep 1; done
! readlink /proc/"$server"/exe >/dev/null || fail "it is there still"
vellum health /dev/vda >/tmp/said 2>&1 && fail "it is called well"
vellum detach /dev/vda >/tmp/said 2>&1 || fail "detach"
vellum attach /dev/vda --via "$via" --mount $at >/tmp/said 2>&1 || fail "attach again"
for n in 1 2 3 4 5 6 7 8; do
    cmp -s /tmp/$n $at/$n || fail "file $n"
done
vellum detach /dev/vda >/dev/null || fail "detach at the end"
vellum check /dev/vda >/tmp/said 2>&1 || fail "check"
echo "$via: passed: ended by the kernel, an error after $took s at most"
