#!/bin/sh
# Runs in the guest: the best way of attaching is used, and the next best if the kernel lacks it. What was written in one way is found by
# the others, a partition table too. A message says what is missing.
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
# Attaches and expects a device; what the previous one wrote must be there.
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

# A server told to stop under a mounted file system lets the kernel write first.
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

# `serve` alone: two volumes, one of them read-only to the kernel as well; what a killed server leaves, the next removes.
serve() {
    vellum serve "$@" --ublk >/tmp/served 2>&1 &
    tries=0
    while ! grep -q '^ready: ' /tmp/served; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "serve $*: $(cat /tmp/served)"
        sleep 0.1
    done
}
nodes() { find /dev -name 'ublk[bc]*' | wc -l; }
vellum create /tmp/second --size 40M >/dev/null
serve a=$disk b=/tmp/second
[ "$(sed 's/ready: //' /tmp/served)" = "/dev/ublkb0 /dev/ublkb1" ] || fail "$(cat /tmp/served)"
[ "$(cat /sys/block/ublkb1/size)" = $((40 << 11)) ] || fail "the second volume's size"
kill -KILL "$(pidof vellum)"
tries=0
while pidof vellum >/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || fail "the killed server is still there"
    sleep 0.1
done
serve a=$disk b=/tmp/second --read-only
[ "$(nodes)" = 4 ] || fail "after a killed server: $(echo /dev/ublk*)"
[ "$(cat /sys/block/ublkb0/ro)" = 1 ] || fail "not read-only"
! dd if=/dev/zero of=/dev/ublkb0 bs=4k count=1 conv=fsync 2>/dev/null || fail "written to a read-only volume"
kill -TERM "$(pidof vellum)"
wait
[ "$(nodes)" = 0 ] || fail "left after serve: $(echo /dev/ublk*)"

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
