#!/usr/bin/env bash
# The packages. Debian's is built, lintian finds no error in it, and what it installs is right. tests/boot.sh installs it, uses it, upgrades
# it under a mounted volume, and purges it. The RPM is built, installed into a directory and removed again by rpm itself.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lib/begin.sh
command -v dpkg-deb >/dev/null || skip 'it needs dpkg-deb'

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "package: FAILED: $*"
    exit 1
}
deb=$(packaging/deb.sh "$VELLUM" "$dir")
if scripts/setup.sh package >/dev/null 2>&1 && command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error "$deb" >"$dir/lintian" || fail "$(cat "$dir/lintian")"
else
    echo 'SKIP: package: lintian, which cannot be had here'
fi
dpkg-deb -x "$deb" "$dir/all"
[ "$("$dir/all/usr/bin/vellum" --version)" = "$("$VELLUM" --version)" ] || fail 'its program does not run'
[ "$(dpkg-deb -I "$deb" conffiles)" = /etc/vellum/volumes/README ] || fail 'its configuration files'
grep -q '^ExecStart=/usr/bin/vellum boot start' "$dir/all/usr/lib/systemd/system/vellum@.service" || fail 'its unit'
for page in vellum vellum-attach vellum-enable; do
    gzip -dc "$dir/all/usr/share/man/man1/$page.1.gz" | grep -q '^\.TH' || fail "the manual page $page"
done
bash -n "$dir/all/usr/share/bash-completion/completions/vellum" || fail 'the completions'
[ -s "$dir/all/usr/share/doc/vellum/guide/reference/commands.md" ] || fail 'the guide'
writable=$(find "$dir/all" ! -type l -perm /022)
[ -z "$writable" ] || fail "others may write: $writable"

# What a purge removes, in a folder instead of a system.
dpkg-deb -e "$deb" "$dir/control"
system=$dir/system
purge() { sed "s# /\(etc\|var\|run\)/# $system/\1/#g" "$dir/control/postrm" | sh -s purge || fail 'a purge'; }
mkdir -p "$system"/{etc/vellum/volumes,var/log/vellum,run/vellum}
touch "$system"/etc/vellum/{a.key,volumes/a.toml} "$system"/var/log/vellum/a.log "$system"/run/vellum/{a.json,a.control}
purge
left=$(cd "$system" && find . -type f | sort | xargs)
[ "$left" = './etc/vellum/a.key ./run/vellum/a.control ./run/vellum/a.json' ] || fail "a purge leaves $left"
rm "$system"/etc/vellum/a.key "$system"/run/vellum/a.json
purge
left=$(find "$system" -name vellum)
[ -z "$left" ] || fail "a purge leaves $left"

if scripts/setup.sh rpm >/dev/null 2>&1 && command -v rpmbuild >/dev/null; then
    rpm=$(packaging/rpm.sh "$VELLUM" "$dir/rpm" 2>"$dir/log") || fail "$(cat "$dir/log")"
    by_rpm() { rpm --root "$dir/rpms" "$@" 2>>"$dir/log" || fail "rpm $*: $(cat "$dir/log")"; }
    mkdir "$dir/rpms"
    by_rpm --initdb
    # Scripts and dependencies need a whole system, not just a directory.
    by_rpm --install --nodeps --noscripts "$rpm"
    by_rpm --verify --nodeps --noscripts vellum
    [ "$("$dir/rpms/usr/bin/vellum" --version)" = "$("$VELLUM" --version)" ] || fail "the RPM's program does not run"
    for script in POSTIN POSTTRANS PREUN POSTUN; do
        rpm -qp --qf "%{$script}" "$rpm" >"$dir/script" 2>/dev/null
        [ -s "$dir/script" ] && sh -n "$dir/script" || fail "the RPM's $script"
    done
    rpm -qp --qf '%{POSTTRANS}' "$rpm" 2>/dev/null | grep -q 'dracut --force' || fail 'the RPM leaves the old program in the initramfs'
    by_rpm --erase --nodeps --noscripts vellum
    left=$(find "$dir/rpms" -iname '*vellum*')
    [ -z "$left" ] || fail "the RPM leaves $left"
else
    echo 'SKIP: package: the RPM, for which rpmbuild cannot be had here'
fi
echo 'package: passed'
