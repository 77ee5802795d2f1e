#!/usr/bin/env bash
# Makes a container image of a static program: container.sh PROGRAM FOLDER. The image is in the user's storage then, as localhost/vellum:VERSION,
# and in an OCI archive in FOLDER, whose path is printed. Needs buildah.
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
umask 022
! readelf -lW "$program" | grep -q INTERP || { echo "container.sh: $program needs the system's libraries, and the image has none: make static" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
image=localhost/vellum:$version
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

root=$context/root
install -D -m 755 "$program" "$root/usr/bin/vellum"
install -D -m 644 LICENSE "$root/usr/share/doc/vellum/LICENSE"
# What it makes files in, and the users that it knows.
install -d "$root/run" "$root/volumes" "$root/etc"
install -d -m 1777 "$root/tmp"
echo 'root:x:0:0::/:/usr/bin/vellum' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
date=$(git log -1 --format=%ct 2>/dev/null || date +%s)
buildah build --quiet --timestamp "$date" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
    --file packaging/Containerfile --tag "$image" "$context" >&2
archive=$out/vellum_${version}_$(uname -m).oci.tar
rm -f "$archive"
buildah push --quiet "$image" "oci-archive:$archive:$image" >&2
echo "$archive"
