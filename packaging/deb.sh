#!/usr/bin/env bash
# Makes a Debian package: deb.sh PROGRAM FOLDER. Prints its file. Needs dpkg-deb, which every Debian has.
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
umask 022
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# A package of another state of the sources has another version, so that it can be upgraded to.
version=${VERSION:-$version}
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
packaging/stage.sh "$program" "$root"

doc=$root/usr/share/doc/vellum
cat >"$doc/copyright" <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: vellum

Files: *
Copyright: the authors of Vellum
License: Apache-2.0
 On Debian systems, the full text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
TEXT
date=$(git log -1 --format=%aD 2>/dev/null || date -R)
printf 'vellum (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- The authors of Vellum <vellum@localhost.invalid>  %s\n' \
    "$version" "$date" | gzip -n9 >"$doc/changelog.gz"

mkdir "$root/DEBIAN"
# What the program is linked to says what it needs; a static one needs nothing.
depends=''
if command -v dpkg-shlibdeps >/dev/null; then
    (cd "$root" && mkdir debian && touch debian/control &&
        dpkg-shlibdeps -O usr/bin/vellum 2>/dev/null | sed -n 's/^shlibs:Depends=//p' >DEBIAN/depends && rm -r debian)
    depends=$(cat "$root/DEBIAN/depends")
    rm "$root/DEBIAN/depends"
elif ldd "$root/usr/bin/vellum" >/dev/null 2>&1; then
    depends='libc6, libgcc-s1'
fi
{
    echo "Package: vellum"
    echo "Version: $version"
    echo "Architecture: $arch"
    echo "Maintainer: The authors of Vellum <vellum@localhost.invalid>"
    echo "Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)"
    [ -z "$depends" ] || echo "Depends: $depends"
    echo "Recommends: e2fsprogs, mount"
    echo "Suggests: nbd-client, fuse3"
    echo "Section: admin"
    echo "Priority: optional"
    echo "Description: virtual SSD for journaling file systems"
    echo " Vellum makes a disk of a file or a block device, and writes each byte once:"
    echo " what ext4 writes into its journal and then home is stored a single time,"
    echo " compressed, and as a difference to what it replaces."
} >"$root/DEBIAN/control"
(cd "$root" && find etc -type f -printf '/%p\n') >"$root/DEBIAN/conffiles"
(cd "$root" && find usr -type f -exec md5sum {} +) >"$root/DEBIAN/md5sums"
for script in postinst prerm postrm; do
    install -m 755 "packaging/deb/$script" "$root/DEBIAN/$script"
done
file=$out/vellum_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >/dev/null
echo "$file"
