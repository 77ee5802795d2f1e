#!/bin/bash
# Runs in each boot of the guest of tests/boot.sh, in the stage that the boot before has set. The last line of each stage reports that it is
# done.
exec >/dev/ttyS0 2>&1
stage=$(cat /test/stage)
echo 1 >/proc/sys/kernel/printk

say() { echo "boot: $*"; }
fail() {
    say "FAIL in stage $stage: $*"
    systemctl --no-pager --full status 'vellum@*' | head -60
    journalctl -b --no-pager | grep -i -E 'vellum|srv' | tail -40
    echo o >/proc/sysrq-trigger
    sleep 60
}
next() { # STAGE HOW: how this boot ends
    echo "$1" >/test/stage
    sync
    say "stage $stage done"
    case $2 in
        off) systemctl poweroff ;;
        cut)
            sleep 1 # for the console
            echo b >/proc/sysrq-trigger
            ;;
    esac
    exit 0
}
mounted() { findmnt -n "$1" >/dev/null; }
server() { sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' /run/vellum/"$(uuid "$1")".json; }
uuid() { sed -n 's/^uuid = "\(.*\)"/\1/p' /etc/vellum/volumes/"$1".toml; }
content() { seq "$1" $(($1 + 20000)); }
whole() { # FOLDER NAME NUMBER
    content "$3" | cmp -s - "$1/$2" || fail "$1/$2 is lost or wrong"
}
came_back() {
    mounted /srv/a || fail '/srv/a is not mounted'
    mounted /srv/b || fail '/srv/b is not mounted'
    [ "$(wc -l </srv/a/boots)" -eq "$(cat /test/boots)" ] || fail "an ordinary service found /srv/a $(wc -l </srv/a/boots) times"
    systemctl -q is-active multi-user.target || fail 'the boot did not go on'
    say "$(systemd-analyze time | head -1); $(systemd-analyze blame --no-pager | grep -E 'vellum@[ab]' | xargs)"
}
ended_well() { # NAME: what its last stop was
    journalctl -b -1 --no-pager -u "vellum@$1" >/tmp/last
    ! grep -qi -E 'failed|cannot' /tmp/last || { cat /tmp/last; fail "vellum@$1 did not end well"; }
}

mkdir -p /var/log/journal
systemctl is-system-running --wait >/dev/null
[ "$stage" = 1 ] || echo $(($(cat /test/boots) + 1)) >/test/boots

case $stage in
1) # A user makes volumes, and enables them.
    echo 0 >/test/boots
    mkdir -p /srv/a /srv/b /var/lib/disks
    vellum create /var/lib/disks/a --size 200M >/dev/null || fail create
    vellum create "$(readlink -f /dev/disk/by-id/virtio-b)" --force --size 200M >/dev/null || fail 'create b'
    for volume in /var/lib/disks/a /dev/disk/by-id/virtio-b; do
        vellum attach $volume --mkfs >/dev/null || fail "attach $volume"
        vellum detach $volume >/dev/null || fail "detach $volume"
    done
    # Without a package, with a program that was copied there.
    vellum enable /var/lib/disks/a --mount /srv/a --now || fail 'enable without a package'
    mounted /srv/a || fail 'enable --now mounts nothing'
    vellum disable /srv/a --now || fail 'disable'
    rm /etc/systemd/system/vellum@.service /etc/systemd/system-generators/vellum-generator /usr/local/bin/vellum ||
        fail 'enable has not written what runs it'
    # With a package.
    hash -r
    dpkg -i /test/1.deb >/tmp/dpkg 2>&1 || fail "dpkg: $(cat /tmp/dpkg)"
    vellum enable /var/lib/disks/a --mount /srv/a --now || fail 'enable a'
    [ ! -e /etc/systemd/system/vellum@.service ] || fail 'enable writes what the package has'
    vellum enable "$(readlink -f /dev/disk/by-id/virtio-b)" --name b --mount /srv/b --via fuse || fail 'enable b'
    grep -q by-id /etc/vellum/volumes/b.toml || fail "b: $(cat /etc/vellum/volumes/b.toml)"
    mounted /srv/a || fail 'enable --now mounts nothing'
    ! mounted /srv/b || fail 'enable mounts without --now'
    systemctl start vellum@b || fail 'start b'
    grep -q vellum@a.service /proc/"$(server a)"/cgroup || fail 'the server belongs to who started it'
    [ "$(head -c1 /proc/"$(server a)"/cmdline)" = @ ] || fail 'a shutdown kills the server'
    [ "$(cat /proc/"$(server a)"/oom_score_adj)" = -900 ] || fail 'the server is among the first to be killed'
    grep -q '^VmLck:.*[1-9][0-9]* kB' /proc/"$(server a)"/status || fail 'the server may be swapped out'
    # The service's rights according to the kernel: the server inherits them.
    grep -q '^NoNewPrivs:.*1' /proc/"$(server b)"/status || fail 'the service may get new privileges'
    grep -q '^CapBnd:.*0000000001200002$' /proc/"$(server b)"/status || fail "the service may $(grep CapBnd /proc/"$(server b)"/status)"
    [ "$(readlink /proc/"$(server b)"/ns/net)" != "$(readlink /proc/1/ns/net)" ] || fail 'the service has a network'
    [ "$(readlink /proc/"$(server b)"/ns/mnt)" = "$(readlink /proc/1/ns/mnt)" ] || fail 'the service mounts for itself'
    say "a is attached by $(grep -o '"via": *"[a-z]*"' /run/vellum/"$(uuid a)".json)"
    exec 9>/srv/a/held
    systemctl stop vellum@a
    systemctl -q is-failed vellum@a || fail 'stopped while it is in use'
    ! vellum disable a --now 2>/tmp/refused || fail 'disabled while it is in use'
    grep -q 'cannot unmount /srv/a' /tmp/refused || fail "disable says: $(cat /tmp/refused)"
    mounted /srv/a || fail 'a stop that failed has unmounted'
    exec 9>&-
    systemctl start vellum@a || fail 'start after a stop that failed'
    systemctl stop vellum@a || fail 'stop a'
    ! mounted /srv/a || fail 'still mounted'
    systemctl start vellum@a || fail 'start a'
    # A missing disk, a missing file, a damaged volume, and an invalid entry.
    vellum create /var/lib/disks/damaged --size 16M >/dev/null || fail 'create damaged'
    size=$(stat -c %s /var/lib/disks/damaged)
    for at in 0 $((size - 1048576)); do
        dd if=/dev/urandom of=/var/lib/disks/damaged bs=64k count=16 seek="$at" oflag=seek_bytes conv=notrunc status=none
    done
    printf 'volume = "/var/lib/disks/damaged"\n' >/etc/vellum/volumes/damaged.toml
    cp /etc/vellum/volumes/b.toml /tmp/b
    sed 's/virtio-b/virtio-gone/; s/srv.b/srv/; /^uuid/d' /tmp/b >/etc/vellum/volumes/nodisk.toml
    printf 'volume = "/var/lib/disks/gone"\n' >/etc/vellum/volumes/nofile.toml
    printf 'volume = "/var/lib/disks/a"\nmuont = "/srv"\n' >/etc/vellum/volumes/broken.toml
    touch /test/enabled
    next 2 off
    ;;
2) # All that is whole has come back, the rest is told.
    came_back
    for name in nodisk nofile damaged broken; do
        systemctl -q is-failed vellum@$name || fail "vellum@$name: $(systemctl is-active vellum@$name)"
    done
    journalctl -b --no-pager -u vellum@broken | grep -q 'broken.toml, line 2' || fail 'nothing tells of the damaged entry'
    journalctl -b --no-pager -u vellum@nodisk | grep -q 'virtio-gone' || fail 'nothing tells of the missing disk'
    journalctl -b --no-pager -u vellum@nofile | grep -q 'disks/gone' || fail 'nothing tells of the missing file'
    journalctl -b --no-pager -u vellum@damaged | grep -q 'disks/damaged' || fail 'nothing tells of the damaged volume'
    rm /etc/vellum/volumes/{nodisk,nofile,damaged,broken}.toml /var/lib/disks/damaged
    # Not synced: the shutdown unmounts first.
    content 1 >/srv/a/unsynced
    content 2 >/srv/b/unsynced
    next 3 off
    ;;
3) # And nothing complains, or is lost, of a shutdown with processes that keep them in use to the end.
    came_back
    whole /srv/a unsynced 1
    whole /srv/b unsynced 2
    ended_well a
    ended_well b
    for place in a b; do
        systemd-run -q --unit=stubborn-$place -p DefaultDependencies=no -p SendSIGKILL=no -p TimeoutStopSec=5 -p IgnoreSIGPIPE=yes \
            /bin/bash -c "trap '' TERM HUP; exec 9>/srv/$place/stubborn; content() { seq \$1 \$((\$1 + 20000)); }; content 3 >&9; while :; do sleep 1; done"
    done
    sleep 3
    next 4 off
    ;;
4)
    came_back
    for place in a b; do
        whole /srv/$place stubborn 3
        [ -z "$(dmesg | grep -i 'ext4.*error')" ] || fail "$(dmesg | grep -i ext4)"
    done
    next 5 cut
    ;;
5) # The power goes, again and again: what was fsynced is there.
    came_back
    cycle=$(cat /test/cycle 2>/dev/null || echo 0)
    for ((n = 1; n <= cycle; n++)); do
        whole /srv/a cut-$n $n
        whole /srv/b cut-$n $n
    done
    [ "$cycle" -lt "$(cat /test/cycles)" ] || next 6 off
    cycle=$((cycle + 1))
    for place in a b; do
        content $cycle | dd of=/srv/$place/cut-$cycle bs=64k conv=fsync status=none || fail "write to $place"
        content 9 >/srv/$place/torn
    done
    sync -f /srv/a
    sync -f /srv/b
    echo $cycle >/test/cycle
    next 5 cut
    ;;
6) # All of it is whole, and goes.
    came_back
    # Under a mounted volume the package may be upgraded, but not removed.
    before=$(server a)
    dpkg -i /test/2.deb >/tmp/dpkg 2>&1 || fail "upgrade: $(cat /tmp/dpkg)"
    [ "$(server a)" = "$before" ] && [ -d "/proc/$before" ] || fail 'an upgrade has ended the server'
    content 7 >/srv/a/upgraded && sync -f /srv/a || fail 'an upgrade has ended the mount'
    whole /srv/a upgraded 7
    ! dpkg -P vellum >/tmp/dpkg 2>&1 || fail 'purged under a mounted volume'
    grep -q 'detach them' /tmp/dpkg || fail "dpkg: $(cat /tmp/dpkg)"
    vellum boot list | grep -q '^a: ' || fail 'what was refused has removed an entry'
    systemctl stop user
    vellum disable /srv/a --now || fail 'disable a'
    vellum disable b --now || fail 'disable b'
    ! mounted /srv/a && ! mounted /srv/b || fail 'still mounted'
    for volume in /var/lib/disks/a /dev/disk/by-id/virtio-b; do
        vellum check $volume >/tmp/check 2>&1 || { cat /tmp/check; fail "check $volume"; }
        device=$(vellum attach $volume) || fail "attach $volume"
        e2fsck -fn "$device" >/tmp/fsck 2>&1 || { cat /tmp/fsck; fail "e2fsck $volume"; }
        vellum detach $volume >/dev/null || fail "detach $volume"
    done
    touch /etc/vellum/volumes/left.toml
    dpkg -P vellum >/tmp/dpkg 2>&1 || fail "purge: $(cat /tmp/dpkg)"
    left=$(find / -xdev -iname '*vellum*' -not -path '/proc/*' -not -path '/var/log/journal/*' -not -path '/var/lib/systemd/*')
    [ -z "$left" ] || fail "left after a purge: $left"
    [ -s /var/lib/disks/a ] || fail 'a purge has removed a volume'
    say 'all done'
    systemctl poweroff
    ;;
esac
