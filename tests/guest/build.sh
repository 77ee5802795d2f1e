#!/usr/bin/env bash
# Makes what a guest boots from: Debian's kernel, and an initramfs with its block drivers and the tools
# that the tests run. Prints the directory. Nothing is installed on the host: the packages are downloaded
# and unpacked beside the build. Exit code 77 when they cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/guest
mkdir -p "$out"
exec 9>"$out/lock"
flock 9

# Part of the guest's identity: another recipe is another guest.
stamp=$(sha256sum tests/guest/build.sh tests/guest/init | sha256sum | cut -c1-16)
if [ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "$out"
    exit 0
fi
cannot() {
    echo "SKIP: no guest: $*" >&2
    exit 77
}
for tool in apt-get apt-cache dpkg-deb cpio depmod xz ldd e2fsck mkfs.ext4 setsid; do
    command -v "$tool" >/dev/null || cannot "$tool is missing"
done

# The newest 6.x kernel with ublk's user copy and nbd.
newest() {
    apt-cache search --names-only '^linux-image-6\.[0-9]+\.[0-9]+\+deb[0-9]+-amd64$' |
        cut -d' ' -f1 | sort -V | tail -1
}
kernel=$(newest)
if [ -z "$kernel" ] && [ "$(id -u)" -eq 0 ]; then
    apt-get update >/dev/null 2>&1 || true
    kernel=$(newest)
fi
[ -n "$kernel" ] || cannot "apt knows no linux-image-6.*-amd64"
version=${kernel#linux-image-}

packages=(busybox-static nbd-client libnl-3-200 libnl-genl-3-200)

work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download "$kernel" "${packages[@]}" >download.log 2>&1) ||
    cannot "apt-get download failed: $(tail -1 "$work/download.log")"

# Of the kernel, its image and these folders of its modules; depmod and modprobe see to the order.
mkdir "$work/kernel"
dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb | tar -x -C "$work/kernel" --wildcards \
    './boot/vmlinuz-*' './lib/modules/*/modules.*' './lib/modules/*/kernel/drivers/block/*' \
    './lib/modules/*/kernel/drivers/nvme/*' './lib/modules/*/kernel/block/*' \
    './lib/modules/*/kernel/drivers/md/dm-mod.*' './lib/modules/*/kernel/drivers/md/dm-flakey.*' \
    './lib/modules/*/kernel/fs/ext4/*' './lib/modules/*/kernel/fs/jbd2/*' './lib/modules/*/kernel/fs/mbcache*' \
    './lib/modules/*/kernel/lib/*crc*' './lib/modules/*/kernel/crypto/crc32*' '*x86/crypto/crc32*' 2>"$work/tar.log" ||
    grep -q 'Not found in archive' "$work/tar.log" || cannot "$kernel: $(tail -1 "$work/tar.log")"
modules=$work/kernel/lib/modules/$version
find "$modules" -name '*.ko.xz' -exec xz -d {} +
for module in nbd nvme ublk_drv loop virtio_blk ext4 dm-mod dm-flakey; do
    [ -n "$(find "$modules" -name "$module.ko")" ] || grep -q "/$module.ko" "$modules/modules.builtin" ||
        cannot "$kernel has no $module"
done

root=$work/root
mkdir -p "$root"/{bin,sbin,dev,proc,sys,run,tmp,mnt,etc,lib/modules}
mv "$modules" "$root/lib/modules/"
depmod -b "$root" "$version" 2>/dev/null
for package in "${packages[@]}"; do
    dpkg-deb -x "$work/$package"_*.deb "$work/tools"
done
cp "$(find "$work/tools" -type f -path "*/bin/busybox")" "$root/bin/busybox"
cp "$(find "$work/tools" -type f -path "*/sbin/nbd-client")" "$root/sbin/nbd-client"
mkdir -p "$root/usr/lib"
find "$work/tools" -name 'libnl*.so*' -exec cp -P {} "$root/usr/lib/" \;
for tool in mkfs.ext4 e2fsck losetup blkid; do
    cp -L "$(command -v "$tool")" "$root/sbin/$tool"
done
cp tests/guest/init "$root/init"
chmod +x "$root/init"
LD_LIBRARY_PATH="$root/usr/lib" tests/guest/libraries.sh "$root" "$root"/sbin/*

cp "$work/kernel/boot/vmlinuz-$version" "$out/vmlinuz"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$out/base.cpio"
echo "$stamp" >"$out/stamp"
echo "$out"
