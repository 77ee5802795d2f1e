#!/bin/sh
# Runs in the guest: full.sh WAY. The disk below is full: an attach that cannot mount ends soon and leaves nothing behind, and once there is
# room everything synced is there.
set -e
via=$1
below=/mnt/below
disk=$below/v
at=/mnt/vellum

fail() {
    echo "FAIL ($via): $*"
    cat /tmp/said /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -20
    exit 1
}
say() { echo "$via: $*"; }
gone() {
    ! grep -q " $at " /proc/mounts || fail "still mounted"
    ! pidof vellum >/dev/null || fail "a server still runs"
    for path in /sys/block/ublkb* /sys/block/nbd*/pid /dev/ublkc*; do
        [ ! -e "$path" ] || fail "$path is left"
    done
    left=$(find /run/vellum -type f ! -name '*.lock' ! -name '*.log.*')
    [ -z "$left" ] || fail "left in /run/vellum: $left"
}
seconds() { cut -d. -f1 /proc/uptime; }

mkdir -p $below $at /var/log /var/tmp
mkfs.ext4 -qF -m 0 /dev/vda 80M
mount /dev/vda $below
vellum create $disk --size 200M >/dev/null
vellum attach $disk --via "$via" --mkfs --mount $at >/dev/null || fail "attach"
dd if=/dev/urandom of=/tmp/kept bs=1M count=4 2>/dev/null
cp /tmp/kept $at/kept
sync
# Once after an orderly end, and once after the server died: then ext4 has a journal to replay.
for before in detached killed; do
    if [ $before = detached ]; then
        vellum detach $disk >/dev/null || fail "detach"
    else
        kill -KILL "$(pidof vellum)"
        sleep 1
        vellum detach $disk >/dev/null || fail "detach of a dead one"
    fi
    gone
    dd if=/dev/zero of=$below/filler bs=64k 2>/dev/null || true
    dd if=/dev/zero of=$below/rest bs=4k 2>/dev/null || true
    sync
    began=$(seconds)
    ! vellum attach $disk --via "$via" --mount $at >/tmp/said 2>&1 || fail "$before: it was mounted without room"
    lasted=$(($(seconds) - began))
    say "$before: attach failed after $lasted s: $(tail -1 /tmp/said)"
    [ $lasted -lt 120 ] || fail "it waited"
    gone
    rm $below/filler $below/rest
    sync
    vellum attach $disk --via "$via" --mount $at >/tmp/said 2>&1 || fail "$before: attach with room"
    cmp -s /tmp/kept $at/kept || fail "$before: what was synced is lost"
    echo more >$at/more
    sync
done
vellum detach $disk >/dev/null || fail "detach at the end"
gone
vellum check $disk >/tmp/said 2>&1 || fail "check"
say "passed"
