#!/bin/sh
# Runs in the guest: the best way of attaching is taken, and the next best when the kernel lacks it. What was
# written by one way is found by the others, a partition table too. What is missing is said.
set -e
disk=/dev/vda
at=/mnt/vellum
modules=/lib/modules/$(uname -r)/kernel/drivers/block

fail() {
    echo "FAIL (ways): $*"
    cat /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -20
    exit 1
}
# Attaches and expects a device; what the last one wrote must be there.
expect() {
    vellum attach $disk --mount $at >/tmp/attached || fail "attach"
    grep -q "^/dev/$1" /tmp/attached || fail "$(cat /tmp/attached), not /dev/$1"
    cmp -s /bin/busybox $at/busybox || fail "by /dev/$1, the file is not what it was"
    cp /bin/busybox $at/again
    mv $at/again $at/busybox
    vellum detach $disk >/dev/null || fail "detach"
    echo "ways: /dev/$1"
}
refused() {
    ! vellum attach $disk --via "$1" >/tmp/refused 2>&1 || fail "attached by $1"
    grep -q "$2" /tmp/refused || fail "instead of '$2', $1 says: $(cat /tmp/refused)"
    echo "ways: $(cat /tmp/refused)"
}

mkdir -p $at
vellum create $disk --size 300M >/dev/null
vellum attach $disk --mkfs --mount $at >/dev/null || fail "attach --mkfs"
cp /bin/busybox $at/busybox
vellum detach $disk >/dev/null || fail "detach"
expect ublkb

# A server that is told to stop under a mounted file system lets the kernel write first.
vellum attach $disk --mount $at >/dev/null || fail "attach"
cp /bin/busybox $at/late
kill -TERM "$(pidof vellum)"
tries=0
while pidof vellum >/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail "the server does not stop"
    sleep 0.1
done
vellum detach $disk >/dev/null || fail "detach after the server was stopped"
vellum attach $disk --mount $at >/dev/null || fail "attach"
cmp -s /bin/busybox $at/late || fail "what was not yet written when the server was stopped is lost"
rm $at/late
vellum detach $disk >/dev/null || fail "detach"

echo 2 >/proc/sys/kernel/io_uring_disabled
refused ublk io_uring
expect nbd
echo 0 >/proc/sys/kernel/io_uring_disabled
rmmod ublk_drv
mv "$modules/ublk_drv.ko" /tmp/
refused ublk "modprobe ublk_drv"
expect nbd
rmmod nbd
mv "$modules/nbd.ko" /tmp/
refused nbd "no module nbd"
expect loop
mv /dev/fuse /dev/hidden
refused fuse /dev/fuse
! vellum attach $disk >/tmp/refused 2>&1 || fail "attached by nothing"
echo "ways: $(cat /tmp/refused)"
mv /dev/hidden /dev/fuse
vellum check $disk >/tmp/check 2>&1 || { cat /tmp/check; fail "check"; }
echo "ways: passed"
