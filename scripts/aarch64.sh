#!/usr/bin/env bash
# Another processor: the core's tests are cross-compiled for aarch64 and run by qemu-user. Crash seeds have the same digests there as here:
# the core does the same, and issues the same bytes to the medium.
#
# Rust's libraries for aarch64 come from Debian, in a system under target/aarch64 (1.7 GB, made once): its packages of Rust for browsers are
# new enough, and exist for both architectures. Needs root, x86-64 and a Debian mirror. Ten minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
SEEDS=${SEEDS:-3}
arm=aarch64-unknown-linux-gnu
here=$(realpath -m "${CARGO_TARGET_DIR:-target}")
base=$here/aarch64
system=$base/system
skip() {
    echo "SKIP: aarch64: $*"
    exit 0
}
fail() {
    echo "aarch64: FAILED: $*"
    exit 1
}
# Mounts made here disappear when this ends.
[ "$(id -u)" -eq 0 ] || skip 'it needs root'
[ "${1:-}" = --own ] || exec unshare --mount --propagation private scripts/aarch64.sh --own
[ "$(uname -m)" = x86_64 ] || skip 'it is for x86-64'
scripts/setup.sh build test aarch64 || skip 'its tools cannot be had here'
mkdir -p "$base/build"
if [ ! -x "$system/usr/bin/cargo" ]; then
    rm -rf --one-file-system "$system" "$system.new"
    packages=rustc-web,cargo-web,libstd-rust-web-dev:arm64,gcc,libc6-dev,gcc-aarch64-linux-gnu,libc6-dev:arm64,qemu-user
    mmdebstrap --quiet --variant=apt --architectures=amd64,arm64 --include="$packages" bookworm "$system.new" >"$base/log" 2>&1 ||
        skip "no such system can be made here: $(tail -1 "$base/log")"
    mv "$system.new" "$system"
fi
cargo fetch --quiet --locked --target "$arm"

mkdir -p "$system"/{src,cargo,build}
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"
mount --rbind . "$system/src"
mount --bind "${CARGO_HOME:-$HOME/.cargo}" "$system/cargo"
mount --bind "$base/build" "$system/build"
inside() {
    chroot "$system" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root CARGO_HOME=/cargo CARGO_TARGET_DIR=/build CARGO_NET_OFFLINE=true \
        CARGO_INCREMENTAL=0 CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64 \
        CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc "$@"
}
crashes=(VELLUM_FROM=1 VELLUM_LIVES=$((40 * SEEDS)) VELLUM_DIGESTS=1)
digests() { grep -oE '(crashes|faults): seed [0-9]+ digest [0-9a-f]+' | sort; }

echo '-- the core: its tests'
# One test counts the comparisons of two searches, takes minutes under qemu-user, and does not depend on the processor.
inside sh -c "cd /src && cargo test --quiet --locked --target $arm -p vellum-codec -p vellum-core --lib \
    --test round_trip --test format_doc --test recovery --test hostile -- --skip a_search_over_buckets_compares_less"
echo '-- the core: the digests of seeds'
inside "${crashes[@]}" sh -c "cd /src && cargo test --quiet --locked --target $arm -p vellum-core --test crash -- --nocapture crashes faults" >"$base/log" ||
    fail "$(tail -20 "$base/log")"
digests <"$base/log" >"$base/there"
env "${crashes[@]}" cargo test --quiet --locked -p vellum-core --test crash -- --nocapture crashes faults >"$base/log" || fail "$(tail -20 "$base/log")"
digests <"$base/log" >"$base/here"
[ "$(wc -l <"$base/here")" -ge $((2 * SEEDS)) ] || fail "few seeds were run: $(cat "$base/here")"
diff "$base/here" "$base/there" || fail 'the same seeds have come to something else'
echo "aarch64: $(wc -l <"$base/here") seeds of crashes have the same digests on both"

echo 'aarch64: passed'
