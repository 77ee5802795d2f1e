#!/bin/sh
# Runs in the guest: suspend.sh WAY. The machine is suspended while a volume is mounted and written, and woken by its clock. If the kernel
# cannot suspend, it gives up after its own 20 s. Either way the writer continues, and what it has synced is there. Without a writer the
# machine is suspended.
set -e
via=$1
at=/mnt/vellum
state=/sys/power/state
alarm=/sys/class/rtc/rtc0/wakealarm

fail() {
    echo "FAIL ($via): $*"
    cat /tmp/said /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -30
    exit 1
}

# Files of 64 KiB, each synced before the next one; the number of the last synced one is recorded.
write() {
    n=0
    while [ ! -e /tmp/enough ]; do
        n=$((n + 1))
        dd if=/tmp/source of=$at/$((n % 100)) bs=64k count=1 skip=$((n % 50)) conv=fsync 2>/dev/null || return 1
        echo $n >/tmp/synced
    done
}

# Checks that the writer continues, within so many seconds.
goes_on() {
    before=$(cat /tmp/synced)
    for _ in $(seq "$1"); do
        sleep 1
        [ "$(cat /tmp/synced)" -le "$before" ] || return 0
    done
    fail "nothing was synced for $1 s $2"
}

modprobe rtc_cmos 2>/dev/null || true
[ -e $alarm ] || { echo "SKIP: suspend: this guest has no clock to be woken by"; exit 0; }
how=freeze
! grep -q mem $state || how=mem
mkdir -p $at /var/log /var/tmp
dd if=/dev/urandom of=/tmp/source bs=64k count=51 2>/dev/null
vellum create /dev/vda >/dev/null
vellum attach /dev/vda --via "$via" --mkfs --mount $at >/dev/null || fail "attach"
echo 0 >/tmp/synced
write &
writer=$!
goes_on 10 "before"
slept=0
for _ in 1 2 3; do
    echo 0 >$alarm
    echo +5 >$alarm
    began=$(date +%s)
    if echo $how 2>/tmp/said >$state; then
        slept=$((slept + 1))
    else
        dmesg | grep -q "Freezing .* failed" || fail "it was not suspended, and not for a task that waits"
    fi
    took=$(($(date +%s) - began))
    [ "$took" -le 40 ] || fail "the kernel took $took s over it"
    goes_on 10 "after"
done
touch /tmp/enough
wait $writer || fail "a sync failed"
# Without a writer it is suspended.
sync
sleep 6
echo 0 >$alarm
echo +5 >$alarm
echo $how 2>/tmp/said >$state || fail "it is not suspended when nobody writes"
vellum health /dev/vda >/tmp/said || fail "it is not well"
last=$(cat /tmp/synced)
first=$((last > 50 ? last - 50 : 1))
vellum detach /dev/vda >/dev/null || fail "detach"
vellum check /dev/vda >/tmp/said 2>&1 || fail "check"
vellum attach /dev/vda --via "$via" --mount $at >/dev/null || fail "attach again"
for n in $(seq $first "$last"); do
    dd if=/tmp/source of=/tmp/expected bs=64k count=1 skip=$((n % 50)) 2>/dev/null
    cmp -s /tmp/expected $at/$((n % 100)) || fail "file $n of $last"
done
vellum detach /dev/vda >/dev/null || fail "detach at the end"
echo "$via: passed: suspended $slept times of 3 ($how), $last files synced"
