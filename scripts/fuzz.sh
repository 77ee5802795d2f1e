#!/usr/bin/env bash
# Fuzz targets, guided by coverage: `make fuzz`. A stable toolchain and a C++ compiler are enough: the instrumentation is LLVM's, and rustc
# passes the options on.
# Nightly adds the address sanitizer, which helps only with unsafe code: `cargo +nightly fuzz run TARGET` for that.
#
#     VELLUM_SECONDS=60   seconds for each target
#     TARGETS='nbd_options leaf'   these alone
#     ROTATE=N FROM=SEED  N of them, others for another seed
#     KEEP=1              adds what was found to the inputs that the repository keeps
#
# Inputs that reach something new are kept in fuzz/corpus/TARGET, reduced to as few as reach the same. The repository keeps those of up to
# 16 KiB in fuzz/kept/TARGET.tar.gz, and each run begins with them. What makes a target fail is kept in fuzz/artifacts/TARGET; to run it
# again: scripts/fuzz.sh again TARGET FILE.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${VELLUM_SECONDS:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/fuzz/target/guided CARGO_INCREMENTAL=0
flags=(--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1)
export RUSTFLAGS="${flags[*]}"
built=$CARGO_TARGET_DIR/$host/release

build() { # TARGET...
    local bins=()
    for target in "$@"; do bins+=(--bin "$target"); done
    # With --target build scripts and macros are not instrumented.
    cargo build --quiet --release --locked --manifest-path fuzz/Cargo.toml --target "$host" "${bins[@]}"
}

if [ "${1:-}" = again ]; then
    build "$2"
    exec "$built/$2" "$3"
fi

mapfile -t targets < <(find fuzz/fuzz_targets -name '*.rs' -printf '%f\n' | sed 's/\.rs$//' | sort)
[ -z "${TARGETS:-}" ] || read -ra targets <<<"$TARGETS"
if [ -n "${ROTATE:-}" ]; then
    turned=()
    for ((i = 0; i < ROTATE && i < ${#targets[@]}; i++)); do turned+=("${targets[(${FROM:-0} + i) % ${#targets[@]}]}"); done
    targets=("${turned[@]}")
fi
build "${targets[@]}"

one() { # TARGET
    local corpus=fuzz/corpus/$1 artifacts=fuzz/artifacts/$1/ log fewer
    log=$(mktemp) fewer=$(mktemp -d)
    mkdir -p "$corpus" "$artifacts"
    [ ! -e "fuzz/kept/$1.tar.gz" ] || tar -xzf "fuzz/kept/$1.tar.gz" -C "$corpus"
    if ! "$built/$1" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -artifact_prefix="$artifacts" -print_final_stats=1 "$corpus" >"$log" 2>&1; then
        echo "$1: FAILED"
        tail -n 40 "$log"
        return 1
    fi
    # Reduced to as few inputs as reach the same.
    "$built/$1" -merge=1 "$fewer" "$corpus" >/dev/null 2>&1 && rm -r "$corpus" && mv "$fewer" "$corpus"
    printf '%s: %s runs, %s inputs kept\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(find "$corpus" -type f | wc -l)"
    rm -rf "$log" "$fewer"
    [ -z "${KEEP:-}" ] || keep "$1"
}

# The same inputs make the same archive.
keep() { # TARGET
    mkdir -p fuzz/kept
    find "fuzz/corpus/$1" -type f -size -17k -printf '%f\n' | LC_ALL=C sort |
        tar -c --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -C "fuzz/corpus/$1" --no-recursion -T - | gzip -9n >"fuzz/kept/$1.tar.gz"
}
export -f one keep
export built seconds KEEP=${KEEP:-}
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'set -euo pipefail; one {}'
