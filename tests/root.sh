#!/usr/bin/env bash
# The root file system on a volume: a Debian whose own initramfs, made by the package's hook, attaches the volume over ublk. It is booted in
# a QEMU guest, killed while it writes (CYCLES=n times, once by default), and booted again: what it had reported as durable is there. Then
# it is shut down, and `vellum check` and e2fsck examine what is left.
# Finally its medium is damaged, and missing: the initramfs reports what is wrong, and ends as it does without any root. PLAIN=n boots of
# the same system on a plain drive measure what the volume adds to a boot.
# Each boot runs tests/guest/root.sh. About 40 s a boot without KVM; needs root and a Debian mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lib/begin.sh
CYCLES=${CYCLES:-1}
PLAIN=${PLAIN:-0}
PATIENCE=${PATIENCE:-600}
INITRAMFS=${INITRAMFS:-initramfs-tools}
debian "root-$INITRAMFS" "systemd-sysv,udev,kmod,e2fsprogs,mount,$INITRAMFS,zstd"

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-root.XXXXXX")
console=$dir/console
serial=disk
qemu='' damaged=''
cleanup() {
    for each in $qemu $damaged; do kill -9 "$each" 2>/dev/null || true; done
    "$VELLUM" detach "$dir/volume" >/dev/null 2>&1 || true
    for place in proc sys; do umount "$dir/system/$place" 2>/dev/null || true; done
    rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
fail() {
    echo "root: FAILED: $*"
    tr -d '\r' <"$console" 2>/dev/null | tail -60
    exit 1
}

# The system as a user installs it: the package, the entry, and a new initramfs.
root=$dir/system
mkdir "$root"
tar -x -C "$root" -f "$system"
cpio -id --quiet -D "$root/usr" 'lib/modules/*' <"$guest/base.cpio"
version=$(basename "$root"/usr/lib/modules/*)
mkdir -p "$root/test" "$root/etc/systemd/system/multi-user.target.wants" "$root/etc/vellum/volumes"
mv "$(packaging/deb.sh "$VELLUM" "$dir")" "$root/test/vellum.deb"
cp tests/guest/root.sh "$root/test/"
chmod +x "$root/test/root.sh"
echo guest >"$root/etc/hostname"
uuid=6e1f2a0c-27b5-4f0e-9d46-5a3c0e8b7711
echo "UUID=$uuid / ext4 defaults 0 1" >"$root/etc/fstab"
cat >"$root/etc/systemd/system/root-test.service" <<'UNIT'
[Unit]
Description=The test of this boot
[Service]
ExecStart=/test/root.sh
UNIT
ln -s /etc/systemd/system/root-test.service "$root/etc/systemd/system/multi-user.target.wants/"
ln -s /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
# The part of Debian's kernel configuration that is queried.
printf "CONFIG_RD_%s=y\n" GZIP ZSTD >"$root/boot/config-$version"
for place in proc sys; do mount --bind "/$place" "$root/$place"; done
chroot "$root" dpkg -i /test/vellum.deb >"$dir/dpkg" 2>&1 || fail "dpkg: $(cat "$dir/dpkg")"
# make FILE: an initramfs of that system; lists FILE: its contents.
if [ "$INITRAMFS" = dracut ]; then
    # All drivers: this machine needs others than the guest.
    make() { chroot "$root" dracut --quiet --force --no-hostonly "$1" "$version" >"$dir/made" 2>&1 || fail "dracut: $(cat "$dir/made")"; }
    lists() { chroot "$root" lsinitrd "$1"; }
else
    make() { chroot "$root" mkinitramfs -o "$1" "$version" >"$dir/made" 2>&1 || fail "mkinitramfs: $(cat "$dir/made")"; }
    lists() { chroot "$root" lsinitramfs "$1"; }
fi
# The module is not enabled yet: then it adds nothing.
make /boot/without
lists /boot/without >"$dir/list"
grep -q bin/ "$dir/list" || fail 'nothing is in the initramfs'
! grep -q bin/vellum "$dir/list" || fail 'an initramfs that nobody asked for'
printf 'volume = "/dev/disk/by-id/virtio-disk"\nbefore = "root"\n' >"$root/etc/vellum/volumes/system.toml"
make /boot/initrd
for place in proc sys; do umount "$root/$place"; done
mv "$root/boot/initrd" "$dir/initrd"
mv "$root/boot/without" "$dir/without"

mkfs() { mkfs.ext4 -q -F -U "$uuid" -d "$root" "$1"; }
if [ "$PLAIN" -gt 0 ]; then
    truncate -s 1500M "$dir/plain"
    mkfs "$dir/plain"
fi
"$VELLUM" create "$dir/volume" --size 1500M >/dev/null
device=$("$VELLUM" attach "$dir/volume") || fail 'attach'
mkfs "$device"
"$VELLUM" detach "$dir/volume" >/dev/null || fail 'detach'
rm -rf "$root"

# boot DRIVE INITRAMFS WORDS...: starts the guest, which runs until it is killed or shuts down.
boot() {
    local drive=$1 initramfs=$2
    shift 2
    : >"$console"
    # One processor: with several, QEMU sometimes runs kernel code that is just being modified.
    qemu-system-x86_64 -accel tcg -cpu max -m 768 -smp 1 -nographic -no-reboot -nodefaults \
        -serial "file:$console" -kernel "$guest/vmlinuz" -initrd "$dir/$initramfs" \
        -append "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic no_timer_check root=UUID=$uuid systemd.show_status=0 $*" \
        -drive "file=$dir/$drive,if=none,id=disk,format=raw,cache=writeback,discard=unmap" -device "virtio-blk-pci,drive=disk,serial=$serial" &
    qemu=$!
}
# said PATTERN: waits until the guest has printed it.
said() {
    for ((tenths = 0; tenths < PATIENCE * 10; tenths++)); do
        ! grep -aqE "root: FAIL|Kernel panic" "$console" || fail "in boot $boots"
        ! grep -aqE "$1" "$console" || return 0
        kill -0 "$qemu" 2>/dev/null || fail "boot $boots ended before it said '$1'"
        sleep 0.1
    done
    fail "boot $boots: out of patience"
}
ended() {
    for ((tenths = 0; tenths < PATIENCE * 10; tenths++)); do
        kill -0 "$qemu" 2>/dev/null || { qemu=''; return 0; }
        sleep 0.1
    done
    fail "boot $boots does not shut down"
}
told() { tr -d '\r' <"$console" | grep -aoE "$1" | tail -1 || true; }

boots=plain
for ((n = 1; n <= PLAIN; n++)); do
    boot plain without test=plain
    said 'root: up .*done'
    echo "plain drive: $(told 'root: up .*done')"
    ended
done
# The power is cut while it writes; the next boot must find what it reported as durable before.
synced=0
boots=0
: "${SEED:=$$}"
RANDOM=$((SEED % 32768))
while [ "$boots" -lt "$CYCLES" ]; do
    boots=$((boots + 1))
    boot volume initrd "test=cut test.synced=$synced"
    said "root: synced $((synced + 1 + RANDOM % 20)) "
    sleep "0.$((RANDOM % 10))"
    kill -9 "$qemu"
    wait "$qemu" 2>/dev/null || true
    qemu=''
    synced=$(told 'root: synced [0-9]+ ' | tr -dc 0-9)
    echo "cut $boots: $(told 'root: up .*done'); $synced files synced"
done
boots=$((boots + 1))
boot volume initrd "test=end test.synced=$synced"
said 'root: up .*done'
ended
echo "end: $(told 'root: up .*done'); $(told 'root: server .*')"
"$VELLUM" check "$dir/volume" >"$dir/check" 2>&1 || fail "check: $(cat "$dir/check")"
device=$("$VELLUM" attach "$dir/volume") || fail 'attach what is left'
code=0
e2fsck -fn "$device" >"$dir/e2fsck" 2>&1 || code=$?
# After a shutdown there must be nothing to replay.
dumpe2fs -h "$device" 2>/dev/null | grep -q '^Filesystem features:.*needs_recovery' && code="$code, and its journal is not empty"
"$VELLUM" detach "$dir/volume" >/dev/null || fail 'detach what is left'
[ "$code" = 0 ] || fail "e2fsck: $code: $(cat "$dir/e2fsck")"

# Both failures, in two guests at once: both superblocks are lost, and the drive is missing. The first guest reboots if the initramfs heeds
# panic=, and the other opens a shell.
cp --sparse=always "$dir/volume" "$dir/damaged"
for block in 0 $(($(stat -c %s "$dir/damaged") / 4096 - 1)); do
    dd if=/dev/zero of="$dir/damaged" bs=4096 count=1 seek="$block" conv=notrunc status=none
done
truncate -s 1M "$dir/other"
named='the volume system \(/dev/disk/by-id/virtio-disk\), which the root file system is on,'
booted=$boots
boots='of a damaged volume'
boot damaged initrd rd.retry=10
damaged=$qemu
console=$dir/console-without serial=other
boot other initrd panic= rd.retry=10
boots='without the drive'
said "$named is missing\\. Is its drive connected"
said 'Dropping to a shell|emergency mode|Entering emergency'
kill -9 "$qemu"
wait "$qemu" 2>/dev/null || true
qemu=$damaged damaged='' console=$dir/console
boots='of a damaged volume'
said "$named is not attached\\. .*both superblocks are lost"
said 'vellum boot start system. tries again'
if [ "$INITRAMFS" = dracut ]; then
    said 'Entering emergency'
    kill -9 "$qemu"
    wait "$qemu" 2>/dev/null || true
    qemu=''
else
    ended
fi
echo "root: passed with $INITRAMFS, $CYCLES cuts, $booted boots of the volume, $synced files that were synced"
