#!/bin/sh
# Runs in the guest: grow.sh WAY LIVES. A mounted ext4 grows with its volume from 1 to 2 GiB while files are written to it, and the server
# is killed at any moment of that, in one of three lives the command with it. What was fsynced is there, a snapshot's contents too, and the
# same command completes the growth. In a guest, because a host may not grant the right that the kernel requires (CAP_SYS_RESOURCE).
set -e
via=$1
lives=$2
disk=/dev/vda
at=/mnt/vellum
past=/mnt/past
large=$((2 << 30))

fail() {
    echo "FAIL ($via, life $life): $*"
    cat /tmp/told /tmp/grown /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -20
    exit 1
}
say() { echo "grow: $*"; }
v() { vellum "$@" >/tmp/told 2>&1 || fail "$*"; }
attach() { v attach $disk --via "$via" --mount $at "$@"; }
grow() { vellum grow $disk --size 2G --fs >/tmp/grown 2>&1; }
size() { vellum info $disk --json | sed 's/.*"size":\([0-9]*\).*/\1/'; }
file_system() { stat -f -c '%b %S' $at | { read -r blocks bytes; echo $((blocks * bytes)); }; }
now() { awk '{ printf "%d", $1 * 1000 }' /proc/uptime; }
content() { seq "$1" $(($1 + 100 + $1 % 7 * 3000)); }
write() { # FROM LIST
    number=$1
    while :; do
        content "$number" | dd of=$at/"$number" bs=64k conv=fsync 2>/dev/null || return 0
        # With asynchronous commits an fsync may succeed although its flush failed: jbd2 ignores that.
        [ -e /tmp/killed ] || echo "$number" >>"$2"
        number=$((number + 1))
    done
}
compare() { # FOLDER LIST
    while read -r number; do
        content "$number" | cmp -s - "$1/$number" || fail "file $number is lost or wrong in $1"
    done <"$2"
}
random() { awk -v seed="$(($(now) * 31 + life * 1009 + $1))" -v most="$2" 'BEGIN { srand(seed); rand(); print int(rand() * most) }'; }
let_go() {
    kill -KILL "$writer" 2>/dev/null || true
    wait "$writer" 2>/dev/null || true
    # Its last dd, and what a killed command had begun.
    sleep 0.5
}

mkdir -p $at $past
early=0 between=0 late=0 took=0 synced=0
life=0
while [ "$life" -le "$lives" ]; do
    rm -f /tmp/killed
    : >/tmp/old
    : >/tmp/durable
    # The emulated processor takes minutes for what an opening reads of the last life's volume.
    blkdiscard $disk 2>/dev/null || true
    v create $disk --force --size 1G --medium-size 1400M
    attach --mkfs
    for number in 1 2 3 4 5 6; do
        content $number | dd of=$at/$number bs=64k conv=fsync 2>/dev/null
        echo $number >>/tmp/old
    done
    v snapshot $disk before
    rm $at/1 $at/2
    write 1000 /tmp/durable &
    writer=$!
    sleep 0."$(random 1 10)"
    began=$(now)
    if [ $life -eq 0 ]; then
        # Without a kill, to measure how long it takes.
        grow || fail "grow"
        took=$(($(now) - began))
        : >/tmp/killed
        let_go
    else
        vellum grow $disk --size 2G --fs >/tmp/grown 2>&1 &
        growing=$!
        # More often at its beginning, where the volume grows, than later, where its file system does.
        usleep $((took * $(random 2 1400) * $(random 3 1000) / 1000))
        : >/tmp/killed
        [ $((life % 3)) -ne 0 ] || kill -KILL $growing 2>/dev/null || true
        kill -KILL "$(pidof vellum | tr ' ' '\n' | grep -vx $growing | tail -1)" || fail "no server to kill"
        wait $growing 2>/dev/null || true
        usleep 200000
        let_go
    fi
    v detach $disk
    v check $disk
    grown=$(size)
    attach
    compare $at /tmp/durable
    synced=$((synced + $(wc -l </tmp/durable)))
    if [ "$grown" -lt $large ]; then
        early=$((early + 1))
    elif [ "$(file_system)" -lt $((large / 10 * 9)) ]; then
        between=$((between + 1))
    else
        late=$((late + 1))
    fi
    grow || fail "grow again"
    [ "$(size)" -eq $large ] || fail "it has $(size) bytes"
    [ "$(file_system)" -gt $((large / 10 * 9)) ] || fail "its file system has $(file_system) bytes"
    compare $at /tmp/durable
    v detach $disk
    v attach $disk@before --via "$via" --mount $past
    compare $past /tmp/old
    v detach $disk@before
    v check $disk
    v attach $disk --via "$via"
    e2fsck -fn "$(cat /tmp/told)" >/tmp/grown 2>&1 || fail "e2fsck"
    v detach $disk
    [ $((life % 10)) -ne 0 ] || say "life $life"
    life=$((life + 1))
done
say "passed over $via, $lives lives killed, a growth takes $took ms under load; when they ended $early had not grown, $between had and their" \
    "file system had not, $((late - 1)) had with it; $synced files that were fsynced"
