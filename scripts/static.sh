#!/usr/bin/env bash
# Builds a `vellum` that needs no system library, and prints its path: static.sh [PROFILE], `release` by default.
#
# With musl, if Rust's target for it is available. Otherwise with the system's glibc, whose static form has a limit: a group of a directory
# service (`--socket-group`) is found by its number only, not by its name.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
machine=$(uname -m)
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
target=$machine-unknown-linux-musl
folder=$profile
[ "$profile" != dev ] || folder=debug

has_musl() {
    command -v musl-gcc >/dev/null || return 1
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ] || return 0
    command -v rustup >/dev/null && rustup target add "$target" >&2
}
cargo() { command cargo build --quiet --locked -p vellum-cli --profile "$profile" --target "$target" >&2; }
if has_musl; then
    # The C code of a dependency is compiled for it, too.
    export "CC_${target//-/_}=musl-gcc"
    cargo
else
    echo "static.sh: $target cannot be had here: the binary is made with the system's glibc" >&2
    target=$machine-unknown-linux-gnu
    RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" cargo
fi
mkdir -p "$build/static"
strip -o "$build/static/vellum" "$build/$target/$folder/vellum"
echo "$build/static/vellum"
