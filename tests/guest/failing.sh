#!/bin/sh
# Runs in the guest: failing.sh WAY ROUNDS SEED. The idea of xfstests' generic/475: the drive of a mounted volume begins to fail under load,
# again and again. Who writes gets an error, nothing hangs, and when the drive works again everything is there whose fsync succeeded.
set -e
via=$1
rounds=$2
seed=$3
disk=/dev/mapper/drive
at=/mnt/vellum
writers="1 2 3"
sectors=$(cat /sys/block/vda/size)

fail() {
    echo "FAIL ($via, round $round, seed $seed): $*"
    cat /tmp/said /run/vellum/*.log 2>/dev/null || true
    dmesg | tail -30
    exit 1
}
say() { echo "$via: $*"; }
seconds() { cut -d. -f1 /proc/uptime; }
# A number below $1, in `drawn`. A function in $(...) could not change the state.
draw() {
    state=$(((state * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((state >> 8) % $1))
}
# The drive becomes another at once, also under what is in flight.
becomes() {
    dmsetup suspend --noflush --nolockfs drive
    echo "0 $sectors $1" | dmsetup load drive
    dmsetup resume drive
}
# Runs vellum, and holds that it ends within $1 seconds.
within() {
    limit=$1
    shift
    began=$(seconds)
    code=0
    timeout $((limit * 2)) vellum "$@" >/tmp/said 2>&1 || code=$?
    took=$(($(seconds) - began))
    [ $took -lt "$limit" ] || fail "vellum $* took $took s"
    return $code
}
v() { within 60 "$@" || fail "vellum $* ($code)"; }
gone() {
    ! grep -q " $at " /proc/mounts || fail "still mounted"
    ! pidof vellum >/dev/null || fail "a server still runs"
    for path in /sys/block/ublkb* /sys/block/nbd*/pid /dev/ublkc*; do
        [ ! -e "$path" ] || fail "$path is left"
    done
    left=$(find /run/vellum -type f ! -name '*.lock' ! -name '*.log.*')
    [ -z "$left" ] || fail "left in /run/vellum: $left"
}

# Version $2 of file $1. All versions of a file have the same length, 1 to 97 KiB, and each block of it differs from version to version.
content() {
    first=$((1000000 + ($1 * 7919 + $2 * 1048573) % 8900000))
    seq $first $((first + 199 + $1 % 7 * 2000))
}
# A line for what is begun, before it is, and one for what is acknowledged: `try`, `is NUMBER VERSION`, `drop`, `gone NUMBER`.
# `undone` is what the test itself has removed.
note() { echo "$*" >>"/tmp/log.$writer"; }
# With asynchronous commits jbd2 ignores a failed flush, so that the last fsync may succeed: `late` is not relied on.
noted() {
    if [ -e /tmp/unsure ]; then note late "$@"; else note "$@"; fi
}
write() { # WRITER ROUND: creates, overwrites in place and deletes files until an error
    writer=$1
    folder=$at/$writer
    state=$((seed + $1 * 1009 + $2 * 100003))
    number=$(($1 * 100000 + $2 * 1000))
    oldest=$number
    while :; do
        draw 10
        if [ "$drawn" -lt 2 ] && [ $oldest -lt $((number - 3)) ]; then
            note drop $oldest
            rm "$folder/$oldest" 2>/dev/null && sync "$folder" 2>/dev/null || break
            noted gone $oldest
            oldest=$((oldest + 1))
        elif [ "$drawn" -lt 5 ] && [ $oldest -lt $number ]; then
            draw $((number - oldest))
            changed=$((oldest + drawn))
            version=$(($(grep "^try $changed " "/tmp/log.$writer" | tail -1 | cut -d' ' -f3) + 1))
            note try $changed $version
            content $changed $version | dd of="$folder/$changed" bs=16k conv=notrunc,fsync 2>/dev/null || break
            noted is $changed $version
        else
            note try $number 0
            content $number 0 | dd of="$folder/$number" bs=16k conv=fsync 2>/dev/null || break
            noted is $number 0
            number=$((number + 1))
        fi
    done
    # Whoever tries again gets an error again. Where writes fail without a pause, what succeeds would be a lie, and is looked for.
    noted=note
    [ $way -ne 1 ] || noted=noted
    for again in 1 2 3; do
        usleep 300000
        note try $((number + again)) 0
        ! content $((number + again)) 0 | dd of="$folder/$((number + again))" bs=16k conv=fsync 2>/dev/null ||
            $noted is $((number + again)) 0
    done
    : >"/tmp/ended.$writer"
}
# Writes a large file again and again, so that the drive has something to do.
stream() {
    while dd if=/dev/urandom of=$at/stream bs=256k count=16 2>/dev/null && sync && [ ! -e /tmp/ended.1 ]; do :; done
    : >/tmp/ended.stream
}
all_ended() {
    for one in $writers stream; do [ -e /tmp/ended."$one" ] || return 1; done
}

# What has to be there of each file: `NUMBER VERSION` for sure, `-` for deleted; then what may be there instead.
wanted() {
    awk '$1 == "is" { sure[$2] = $3; maybe[$2] = "" } $1 ~ /^(gone|undone)$/ { sure[$2] = "-"; maybe[$2] = "" }
        $1 == "try" { maybe[$2] = maybe[$2] " " $3; all[$2] = 1 } $1 == "drop" { maybe[$2] = maybe[$2] " -" }
        END { for (n in all) print n, (n in sure ? sure[n] : "-"), maybe[n] }' "/tmp/log.$1"
}
# True if each block of file $1 is one of the versions that follow.
a_mixture() {
    file=$1
    number=$2
    shift 2
    : >/tmp/versions
    for version; do
        [ "$version" = - ] || content "$number" "$version" >"/tmp/version.$version"
    done
    blocks=$((($(stat -c %s "$file") + 4095) / 4096))
    block=0
    while [ $block -lt $blocks ]; do
        found=0
        dd if="$file" of=/tmp/block bs=4096 skip=$block count=1 2>/dev/null || return 1
        for version; do
            [ "$version" != - ] || continue
            dd if="/tmp/version.$version" bs=4096 skip=$block count=1 2>/dev/null | cmp -s - /tmp/block && found=1
        done
        [ $found -eq 1 ] || return 1
        block=$((block + 1))
    done
}
compare() {
    for writer in $writers; do
        wanted "$writer" >/tmp/wanted
        while read -r number sure maybe; do
            file=$at/$writer/$number
            if [ "$sure" = - ]; then
                # Made anew and never acknowledged: any part of it may be there.
                [ ! -e "$file" ] || [ -n "$maybe" ] || fail "file $number of writer $writer was deleted, and is there"
            elif [ ! -e "$file" ]; then
                case " $maybe " in *" - "*) ;; *) fail "file $number of writer $writer is lost" ;; esac
            elif ! content "$number" "$sure" | cmp -s - "$file"; then
                # shellcheck disable=SC2086 # one word a version
                [ -n "$maybe" ] && a_mixture "$file" "$number" $sure $maybe ||
                    fail "file $number of writer $writer is not version $sure${maybe:+, nor one of $maybe}"
            fi
            # What is open becomes sure, for the next round.
            [ -z "$maybe" ] || { rm -f "$file" && note undone "$number"; }
        done </tmp/wanted
    done
    sync
    sure=$(changes)
}
changes() { cat /tmp/log.* | grep -c '^is\|^gone' || true; }
late() { cat /tmp/log.* | grep -c '^late' || true; }

# The three ways in which it fails: everything; everything, with pauses; and what is written alone.
failure() {
    case $1 in
        0) becomes error ;;
        1) becomes "flakey /dev/vda 0 1 2" ;;
        2) becomes "flakey /dev/vda 0 0 1000000 1 error_writes" ;;
    esac
}
a_round() {
    way=$(((round + seed) % 3))
    draw 2
    options=data=journal
    [ "$drawn" -eq 0 ] || options=data=journal,journal_async_commit
    rm -f /tmp/ended.* /tmp/unsure
    v attach $disk --via "$via" --mount $at --options $options
    for one in $writers; do write "$one" "$round" & done
    stream &
    draw 30
    enough=$((sure + 10 + drawn))
    began=$(seconds)
    while [ "$(changes)" -lt $enough ] && [ $(($(seconds) - began)) -lt 60 ]; do usleep 100000; done
    draw 500
    usleep $((drawn * 1000))
    for one in $writers; do [ ! -e /tmp/ended."$one" ] || fail "writer $one ended before the drive failed"; done
    [ $options = data=journal ] || : >/tmp/unsure
    failure $way
    began=$(seconds)
    until all_ended; do
        [ $(($(seconds) - began)) -lt 60 ] || fail "who writes waits for a drive that fails"
        usleep 100000
    done
    ended=$(($(seconds) - began))
    within 60 health $disk && fail "it is called well"
    grep -q POISONED /tmp/said || fail "health does not say what is wrong"
    draw 2
    early=$drawn
    # Whether it works again or not, this volume accepts nothing more.
    [ "$early" -eq 0 ] || becomes "linear /dev/vda 0"
    within 60 detach $disk || fail "detach ($code)"
    detached=$took
    gone
    if [ "$early" -eq 0 ]; then
        # It fails still, so that nothing can be done, and nothing is left of the attempt.
        becomes error
        for command in "check $disk" "attach $disk --via $via --mount $at"; do
            # shellcheck disable=SC2086 # a command and its arguments
            within 60 $command && fail "$command succeeds without a drive"
            why=$(grep '^vellum: read of .*Input/output error' /tmp/said) || fail "$command does not say why"
            gone
        done
        # And it fails again and again while the volume is recovered.
        becomes "flakey /dev/vda 0 1 1"
        within 60 attach $disk --via "$via" --mount $at || true
        within 60 detach $disk || true
        becomes "linear /dev/vda 0"
        gone
    fi
    v check $disk
    v attach $disk --via "$via" --mount $at
    compare
    v detach $disk
    v attach $disk --via "$via"
    e2fsck -fn "$(cut -d' ' -f1 /tmp/said)" >/tmp/fsck 2>&1 || { cat /tmp/fsck; fail "e2fsck"; }
    v detach $disk
    gone
    set -- "all fails" "all fails 2 s of each 3" "writes fail"
    shift $way
    say "round $round: $1, $options; errors after $ended s, detached in $detached s," \
        "$([ "$early" -eq 0 ] && echo "refused: $why" || echo "it worked again before"); $sure changes"
}

modprobe dm_mod
modprobe dm_flakey
mkdir -p $at /var/log /var/tmp
round=0
state=$seed
sure=0
echo "0 $sectors linear /dev/vda 0" | dmsetup create drive
dmsetup mknodes # there is no udev
say "seed $seed"
v create $disk
v attach $disk --via "$via" --mkfs --mount $at
for one in $writers; do
    mkdir $at/"$one"
    : >/tmp/log."$one"
done
sync
v detach $disk
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    a_round
done
dmsetup remove drive
[ "$sure" -ge $((rounds * 10)) ] || fail "only $sure changes were acknowledged"
say "passed: $rounds rounds, $sure acknowledged changes are there, $(late) acknowledged too late to be relied on"
