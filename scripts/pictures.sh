#!/usr/bin/env bash
# Remakes the pictures of the page in the guide: docs/guide/src/page-light.png and page-dark.png. A volume is attached and used for a while,
# and a headless browser opens `vellum metrics --page`. Needs root and Chromium; nothing is left behind. Other volumes of this user are not
# in the picture.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "${1:-}" = --own ] || exec unshare --mount --propagation private scripts/pictures.sh --own
[ -n "${VELLUM:-}" ] || cargo build --quiet --release --locked -p vellum-cli
VELLUM=$(realpath "${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}")
command -v chromium >/dev/null || { echo 'pictures.sh: it needs chromium (scripts/setup.sh test)' >&2; exit 1; }
dir=$(mktemp -d -p /var/tmp)
page=''
end() {
    [ -z "$page" ] || kill "$page" || true
    "$VELLUM" detach /srv/disk.vellum >/dev/null 2>&1 || true
    umount /srv /run/vellum || true
    rm -rf "$dir"
}
trap end EXIT
mkdir -p /run/vellum "$dir/srv" "$dir/mnt"
mount --bind "$dir/srv" /srv
mount -t tmpfs -o mode=700 none /run/vellum
"$VELLUM" create /srv/disk.vellum --size 1G >/dev/null
"$VELLUM" attach /srv/disk.vellum --via fuse --mkfs --mount "$dir/mnt" >/dev/null
cp -r docs crates "$dir/mnt"
# Like an editor that saves, and a database that commits.
for ((n = 0; n < 400; n++)); do
    dd if=CHANGELOG.md of="$dir/mnt/$((n % 20))" bs=4k count=2 skip=$((n % 9)) conv=fsync,notrunc status=none
done
sync -f "$dir/mnt"
"$VELLUM" metrics --page --listen 127.0.0.1:0 2>"$dir/log" &
page=$!
until grep -q '^ready: ' "$dir/log"; do sleep 0.1; kill -0 "$page"; done
url=$(sed -n 's/^ready: //p' "$dir/log")
for look in light=1 dark=0; do
    timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$dir/browser" \
        --blink-settings=preferredColorScheme="${look#*=}" --window-size=1000,1100 --virtual-time-budget=8000 \
        --screenshot="docs/guide/src/page-${look%=*}.png" "$url" 2>"$dir/chromium" || { cat "$dir/chromium"; exit 1; }
done
ls -l docs/guide/src/page-*.png
