#!/bin/sh
# Runs in the guest: attach.sh WAY. The whole life of an attachment: created, written, undone, created again, its server killed under load,
# cleared up and created again. What was fsynced is there each time.
set -e
via=$1
disk=/dev/vda
at=/mnt/vellum

fail() {
    echo "FAIL ($via): $*"
    cat /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -20
    exit 1
}
say() { echo "$via: $*"; }
# A number from the server's statistics; the first of that name.
stat() { vellum stats $disk --json | grep -o "\"$1\":[0-9][0-9]*" | sed -n '1s/.*://p'; }
attach() { vellum attach $disk --via "$via" --mount $at "$@" >/tmp/attached || fail "attach $*"; }
detach() { vellum detach $disk >/dev/null || fail "detach"; }
gone() {
    ! grep -q " $at " /proc/mounts || fail "still mounted"
    ! pidof vellum >/dev/null || fail "the server still runs"
    for path in /sys/block/ublkb* /sys/block/nbd*/pid /dev/ublkc*; do
        [ ! -e "$path" ] || fail "$path is left"
    done
    left=$(find /run/vellum -type f ! -name '*.lock')
    [ -z "$left" ] || fail "left in /run/vellum: $left"
}
# Files whose names determine their contents; a name is logged once its contents are fsynced.
content() { seq "$1" $(($1 + 100 + $1 % 7 * 3000)); }
write() {
    number=$1
    while [ "$number" -lt "$2" ]; do
        content "$number" | dd of=$at/"$number" bs=64k conv=fsync 2>/dev/null || return 0
        # With asynchronous commits an fsync may succeed although its flush failed: jbd2 ignores that.
        [ -e /tmp/killed ] || echo "$number" >>/tmp/durable
        number=$((number + 1))
    done
}
compare() {
    while read -r number; do
        content "$number" | cmp -s - $at/"$number" || fail "file $number is lost or wrong"
    done </tmp/durable
    say "$(wc -l </tmp/durable) fsynced files are there"
}
check() {
    vellum check $disk >/tmp/check 2>&1 || { cat /tmp/check; fail "check"; }
}

mkdir -p $at
: >/tmp/durable
vellum create $disk --size 300M --medium-size 380M >/dev/null

attach --mkfs --options data=ordered
device=$(cut -d' ' -f1 /tmp/attached)
queue=/sys/block/${device#/dev/}/queue
say "$device: blocks of $(cat "$queue/logical_block_size"), cache: $(cat "$queue/write_cache"), fua: $(cat "$queue/fua")"
[ "$(cat "$queue/write_cache")" = "write back" ] || fail "the kernel does not know that there is a cache"
[ "$(cat "$queue/fua")" = 1 ] || fail "the kernel does not know FUA"
[ "$(cat "$queue/discard_max_bytes")" -gt 0 ] || fail "no discard"
! vellum attach $disk --via "$via" >/tmp/twice 2>&1 || fail "attached twice"
grep -q "attached already" /tmp/twice || fail "attached twice: $(cat /tmp/twice)"
write 1 20
[ "$(stat fua)" -gt 0 ] || fail "no FUA write arrived"
[ "$(stat flushes)" -gt 0 ] || fail "no flush arrived"
say "flushes: $(stat flushes), writes with FUA: $(stat fua)"
rm $at/1 $at/2
sed -i '/^[12]$/d' /tmp/durable
sync
fstrim $at 2>/dev/null || say "no fstrim here"
[ "$(stat discarded_blocks)" -gt 0 ] || fail "no discard arrived"
if [ "$via" = ublk ]; then
    # As a virtual machine has it.
    umount $at
    exec 9<"$device"
    ! vellum detach $disk >/tmp/held 2>&1 || fail "detached from under a program"
    grep -q "is in use" /tmp/held || fail "detach says: $(cat /tmp/held)"
    exec 9<&-
fi
detach
gone
check

attach
compare
write 20 30
e2fsck -fn "$device" >/dev/null 2>&1 || true # of a mounted one it may say anything; it must not hurt
detach
gone
check

# The server is killed under load: the mount fails, and nothing that was fsynced is lost.
for life in 1 2; do
    attach
    compare
    rm -f /tmp/killed
    write $((life * 1000)) $((life * 1000 + 999)) &
    writer=$!
    sleep 2
    : >/tmp/killed
    kill -KILL "$(pidof vellum)"
    tries=0
    while pidof vellum >/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "the killed server is still there"
        sleep 0.1
    done
    if [ "$life" = 1 ]; then
        detach
        wait $writer
        gone
        check
    else # attach clears up by itself
        kill $writer 2>/dev/null || true
        wait $writer || true
    fi
done
attach
compare
detach
gone

# It grows while it is mounted; its file system grows at the next attach, because this kernel does not notice before.
attach
size() { df -k $at | tail -1 | awk '{ print $2 }'; }
! vellum grow $disk --size 400M --fs >/tmp/grown 2>&1 || fail "grow --fs: $(cat /tmp/grown)"
grep -q 'detach, and give the same command again' /tmp/grown || fail "grow says: $(cat /tmp/grown)"
compare
detach
vellum grow $disk --size 400M --fs >/tmp/grown 2>&1 || fail "grow at rest: $(cat /tmp/grown)"
attach
[ "$(size)" -gt 340000 ] || fail "its file system has $(size) KiB: $(cat /tmp/grown)"
say "$(tail -1 /tmp/grown)"
compare
detach
gone

# The volume holds a whole file system.
vellum attach $disk --via "$via" >/tmp/attached || fail "attach without mount"
device=$(cat /tmp/attached)
e2fsck -fn "$device" >/tmp/fsck 2>&1 || { cat /tmp/fsck; fail "e2fsck"; }

# Sectors that are not whole blocks, without the page cache: a run that begins and ends within a block.
dd if=/dev/urandom of=/tmp/sectors bs=512 count=1000 2>/dev/null
dd if=/tmp/sectors of="$device" bs=512 seek=100003 oflag=direct 2>/dev/null || fail "direct write of sectors"
dd if=/tmp/sectors of="$device" bs=128000 seek=51201536 oflag=direct,seek_bytes conv=notrunc 2>/dev/null ||
    fail "direct write of many sectors"
for skip in $((100003 * 512)) 51201536; do
    dd if="$device" bs=512 count=1000 skip="$skip" iflag=direct,skip_bytes 2>/dev/null | cmp -s - /tmp/sectors && continue
    fail "sectors at $skip are not what was written"
done
detach
gone
check

# Several concurrent requests with little memory, so that they wait for it; long ones and short ones.
vellum attach $disk --via "$via" --buffer 8M >/tmp/attached || fail "attach with a small buffer"
device=$(cat /tmp/attached)
dd if=/dev/urandom of=/tmp/stream bs=1M count=16 2>/dev/null
jobs=''
place=0
for size in 4k 64k 1M 4M; do
    seek=$((place << 20))
    place=$((place + 40))
    dd if=/tmp/stream of="$device" bs=$size seek=$seek oflag=direct,seek_bytes conv=notrunc 2>/dev/null &
    jobs="$jobs $!"
done
for job in $jobs; do
    wait "$job" || fail "a direct writer"
done
place=0
for _ in $jobs; do
    seek=$((place << 20))
    place=$((place + 40))
    dd if="$device" bs=256k skip=$seek count=16M iflag=direct,skip_bytes,count_bytes 2>/dev/null |
        cmp -s - /tmp/stream || touch /tmp/differs &
done
wait
[ ! -e /tmp/differs ] || fail "what was written at once is not what is read"
detach
gone
check
say "passed"
