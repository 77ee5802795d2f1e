# Sourced by tests that begin in the root of the repository: the binary, and ways to end without a result.
export PATH="$PATH:/usr/sbin:/sbin"
[ -n "${VELLUM:-}" ] || cargo build --quiet --release --locked -p vellum-cli
VELLUM=$(realpath "${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}")

skip() {
    echo "SKIP: $(basename "$0" .sh): $*"
    exit 0
}
needs() { # TOOL...: and root, FUSE and loop devices
    [ "$(id -u)" -eq 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip 'it needs root, /dev/fuse and /dev/loop-control'
    for tool; do command -v "$tool" >/dev/null || skip "it needs $tool"; done
}
# debian NAME PACKAGES: the $guest, and a Debian for it in $system, made once for all runs: its contents are part of its name.
debian() {
    [ "$(id -u)" -eq 0 ] || skip 'it needs root'
    scripts/setup.sh guest system || skip 'its tools cannot be had here'
    local code=0
    guest=$(tests/guest/build.sh) || code=$?
    [ "$code" -ne 77 ] || skip 'no guest can be made here'
    [ "$code" -eq 0 ] || exit "$code"
    system=$guest/$1-bookworm-$2.tar
    [ ! -e "$system" ] || return 0
    rm -f "$guest/$1"-*.tar
    mmdebstrap --quiet --variant=minbase --format=tar --include="$2" bookworm "$system.new" >"$guest/$1.log" 2>&1 ||
        skip "no Debian can be made here: $(tail -1 "$guest/$1.log")"
    mv "$system.new" "$system"
}
