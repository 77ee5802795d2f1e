#!/usr/bin/env bash
# The packages. Debian's: it is made, lintian finds no error in it, and what it installs is right. Installed, used, upgraded under a mounted
# volume and purged it is by tests/boot.sh. The RPM is made, installed into a folder and removed again by rpm itself.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${VELLUM:-}" ] || cargo build --quiet --release --locked -p vellum-cli
VELLUM=$(realpath "${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}")
command -v dpkg-deb >/dev/null || { echo 'SKIP: package: it needs dpkg-deb'; exit 0; }

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

if scripts/setup.sh rpm >/dev/null 2>&1 && command -v rpmbuild >/dev/null; then
    rpm=$(packaging/rpm.sh "$VELLUM" "$dir/rpm" 2>"$dir/log") || fail "$(cat "$dir/log")"
    by_rpm() { rpm --root "$dir/rpms" "$@" 2>>"$dir/log" || fail "rpm $*: $(cat "$dir/log")"; }
    mkdir "$dir/rpms"
    by_rpm --initdb
    # Scripts and dependencies are of a whole system, which a folder is not.
    by_rpm --install --nodeps --noscripts "$rpm"
    by_rpm --verify --nodeps --noscripts vellum
    [ "$("$dir/rpms/usr/bin/vellum" --version)" = "$("$VELLUM" --version)" ] || fail "the RPM's program does not run"
    for script in POSTIN PREUN POSTUN; do
        rpm -qp --qf "%{$script}" "$rpm" >"$dir/script" 2>/dev/null
        [ -s "$dir/script" ] && sh -n "$dir/script" || fail "the RPM's $script"
    done
    by_rpm --erase --nodeps --noscripts vellum
    left=$(find "$dir/rpms" -iname '*vellum*')
    [ -z "$left" ] || fail "the RPM leaves $left"
else
    echo 'SKIP: package: the RPM, for which rpmbuild cannot be had here'
fi
echo 'package: passed'
