#!/usr/bin/env bash
# Volumes are attached again after a boot: a Debian with systemd in a QEMU guest, with the package, booted repeatedly. It is shut down with
# unwritten data and with processes that use a volume, and its power is cut (CYCLES=n times, once by default). Each boot runs
# tests/guest/boot.sh. About 30 s a boot without KVM; needs root and a Debian mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lib/begin.sh
CYCLES=${CYCLES:-1}
PATIENCE=${PATIENCE:-600}
debian system systemd-sysv,udev,kmod,e2fsprogs,mount

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-boot.XXXXXX")
qemu=''
cleanup() {
    [ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

root=$dir/root
mkdir -p "$root" "$dir/early/test"
tar -x -C "$root" -f "$system"
(cd "$dir/early" && cpio -id --quiet 'lib/modules/*' <"$guest/base.cpio")
cp -r "$dir/early/lib/modules" "$root/usr/lib/"
mkdir -p "$root/test" "$root/etc/systemd/system.conf.d" "$root/etc/systemd/system/multi-user.target.wants"
strip -o "$root/usr/local/bin/vellum" "$VELLUM"
chmod 755 "$root/usr/local/bin/vellum"
# The first package is installed, and the second upgrades it.
for version in 1 2; do
    mv "$(VERSION=$version packaging/deb.sh "$VELLUM" "$dir")" "$root/test/$version.deb"
done
cp tests/guest/boot.sh "$root/test/"
chmod +x "$root/test/boot.sh"
echo 1 >"$root/test/stage"
echo "$CYCLES" >"$root/test/cycles"
echo guest >"$root/etc/hostname"
echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
printf '[Manager]\nDefaultDeviceTimeoutSec=45s\n' >"$root/etc/systemd/system.conf.d/test.conf"
cat >"$root/etc/systemd/system/boot-test.service" <<'UNIT'
[Unit]
Description=The test of this boot
[Service]
ExecStart=/test/boot.sh
UNIT
# An ordinary service that uses a volume without knowing of it: the volume is mounted before it starts.
cat >"$root/etc/systemd/system/user.service" <<'UNIT'
[Unit]
Description=A user of a volume
ConditionPathExists=/test/enabled
[Service]
ExecStart=/bin/sh -c 'date >>/srv/a/boots; exec sleep infinity <>/srv/a/held'
UNIT
for unit in boot-test user; do
    ln -s "/etc/systemd/system/$unit.service" "$root/etc/systemd/system/multi-user.target.wants/"
done
ln -s /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
truncate -s 1500M "$dir/disk"
mkfs.ext4 -q -d "$root" "$dir/disk"
rm -rf "$root" "$dir/early/lib"
truncate -s 400M "$dir/b"
truncate -s 16M "$dir/other"
install -m 755 tests/guest/boot-init "$dir/early/boot-init"
(cat "$guest/base.cpio" && cd "$dir/early" && find . | cpio -o -H newc --quiet) >"$dir/initramfs"

drive() { # NAME: a disk that is known by it
    echo "-drive file=$dir/$1,if=none,id=$1,format=raw,cache=writeback,discard=unmap -device virtio-blk-pci,drive=$1,serial=$1"
}
boots=0
while :; do
    boots=$((boots + 1))
    [ "$boots" -le $((CYCLES + 8)) ] || { echo "boot: FAILED: no end after $boots boots"; exit 1; }
    # Disks are not found in the same order each time.
    disks="$(drive b) $(drive other)"
    [ $((boots % 2)) -eq 1 ] || disks="$(drive other) $(drive b)"
    : >"$dir/console"
    # shellcheck disable=SC2046,SC2086 # words
    # One processor: with several, QEMU sometimes runs kernel code that is just being modified.
    qemu-system-x86_64 -accel tcg -cpu max -m 768 -smp 1 -nographic -no-reboot -nodefaults \
        -serial "file:$dir/console" -kernel "$guest/vmlinuz" -initrd "$dir/initramfs" \
        -append "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic no_timer_check rdinit=/boot-init systemd.show_status=0" \
        $(drive disk) $disks &
    qemu=$!
    for ((tenths = 0; tenths < PATIENCE * 10; tenths++)); do
        kill -0 "$qemu" 2>/dev/null || break
        sleep 0.1
    done
    late=''
    ! kill -0 "$qemu" 2>/dev/null || late=1
    kill "$qemu" 2>/dev/null || true
    wait "$qemu" 2>/dev/null || true
    qemu=''
    tr -d '\r' <"$dir/console" | grep -aoE 'boot: (stage|Startup|FAIL|all|a is) .*' || true
    if [ -n "$late" ] || ! grep -aqE 'boot: (stage [0-9]|all) done' "$dir/console"; then
        tr -d '\r' <"$dir/console" | tail -60
        echo "boot: FAILED in boot $boots${late:+: out of patience}"
        exit 1
    fi
    ! grep -aq 'boot: all done' "$dir/console" || break
done
echo "boot: passed, $boots boots"
