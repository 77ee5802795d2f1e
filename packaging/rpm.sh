#!/usr/bin/env bash
# Makes an RPM package: rpm.sh PROGRAM FOLDER. Prints its file. Needs rpmbuild.
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packaging/stage.sh "$program" "$work/stage"
mv "$work/stage/usr/share/zsh/vendor-completions" "$work/stage/usr/share/zsh/site-functions"
install -D -m 644 LICENSE "$work/stage/usr/share/licenses/vellum/LICENSE"
# RPM's distributions have dracut.
rm -r "$work/stage/usr/share/initramfs-tools"
# Folders that are not ours alone belong to others' packages.
sed -e "s|@VERSION@|${VERSION:-$version}|" -e "s|@STAGE@|$work/stage|" packaging/vellum.spec >"$work/vellum.spec"
rpmbuild --quiet -bb --define "_topdir $work/rpm" --define "_rpmdir $out" --define '_build_id_links none' "$work/vellum.spec" >&2
find "$out" -name "vellum-${VERSION:-$version}-1*.rpm"
