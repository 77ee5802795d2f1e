#!/usr/bin/env bash
# The static binary: it needs no other file to run, so it is used in a directory that has none. Its volume is written and read by another
# program over NBD, and is intact afterwards. `make static` builds one and runs this: another full build would take CI too long.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
for tool in readelf qemu-io nbdinfo; do
    command -v "$tool" >/dev/null || { echo "SKIP: static: it needs $tool (scripts/setup.sh test)"; exit 0; }
done
[ -n "${STATIC:-}" ] || { echo 'SKIP: static: there is no static program (make static builds one and tries it)'; exit 0; }
STATIC=$(realpath "$STATIC")

dir=$(mktemp -d -p /var/tmp)
server=''
end() {
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    ! mountpoint -q "$dir/proc" || umount "$dir/proc"
    rm -rf --one-file-system "$dir"
}
trap end EXIT
fail() {
    echo "static: FAILED: $*"
    exit 1
}
# No program loader, and no library.
! readelf -lW "$STATIC" | grep INTERP || fail 'it asks for a loader'
! readelf -dW "$STATIC" | grep NEEDED || fail 'it needs a library'
[ "$(id -u)" -eq 0 ] || { echo 'SKIP: static: an empty folder as its system, which needs root'; exit 0; }

mkdir -p "$dir/run" "$dir/tmp" "$dir/etc" "$dir/proc"
cp "$STATIC" "$dir/vellum"
echo 'disks:x:4711:' >"$dir/etc/group"
inside() { timeout 60 chroot "$dir" /vellum "$@"; }
serve() {
    chroot "$dir" /vellum serve disk=/v --socket /run/socket "$@" >"$dir/log" 2>&1 &
    server=$!
    for ((tries = 0; tries < 1200; tries++)); do
        ! grep -q '^ready: ' "$dir/log" || return 0
        sleep 0.05
    done
    fail "$(cat "$dir/log")"
}
stop() {
    kill "$server"
    wait "$server" || fail "it ended with an error: $(cat "$dir/log")"
    server=''
}
uri="nbd+unix:///disk?socket=$dir/run/socket"
io() {
    local said
    said=$(timeout 60 qemu-io -f raw "$@" "$uri") || fail "$said"
    ! grep -q 'verification failed' <<<"$said" || fail "$said"
}
inside --version | grep -q '^vellum ' || fail 'it does not run where there is nothing else'
inside create /v --size 64M >/dev/null
serve
[ "$(timeout 60 nbdinfo --size "$uri")" = $((64 << 20)) ] || fail 'nbdinfo'
io -c 'write -P 7 1M 3M' -c flush -c 'read -P 7 1M 3M' -c 'read -P 0 4M 1M'
stop
# A group is looked up without the system's library; and a server gives up all rights it can if the kernel lists its threads.
mount -t proc proc "$dir/proc"
serve --socket-group disks
[ "$(stat -c %g "$dir/run/socket")" = 4711 ] || fail "the socket's group: $(ls -ln "$dir/run/socket")"
io -c 'read -P 7 1M 3M'
inside stats /v >"$dir/stats"
! grep 'confined.*NOT' "$dir/stats" || fail 'it is less confined than it can be'
stop
inside check /v >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
echo "static: passed ($(stat -c %s "$STATIC") bytes)"
