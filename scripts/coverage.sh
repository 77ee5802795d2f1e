#!/usr/bin/env bash
# The part of the core that the simulated lives reach: `make coverage`. Unit tests do not count: a line that only they run has lived through
# no crash.
#
# Prints the lines reached by directory, and fails if no life reaches a function that is not listed in xtask/unreached.toml, or if fewer
# lines are reached than it states. SHRINK=1 removes from that list what is now reached. KEEP=DIR keeps the traces.
#
#     LIVES=400   lives of each kind of the core's; the seeds are always the same
#
# Needs the tools of rustc's own LLVM: those of rustup (`rustup component add llvm-tools`), or the system's packages llvm-N.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${HOME:-/root}/.cargo/bin"
host=$(rustc -vV | sed -n 's/^host: //p')
major=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')

with_rustc=$(rustc --print sysroot)/lib/rustlib/$host/bin
tool() { # NAME
    if [ -x "$with_rustc/$1" ]; then echo "$with_rustc/$1"; else command -v "$1-$major"; fi
}
tool llvm-cov >/dev/null || scripts/setup.sh coverage
cov=$(tool llvm-cov) profdata=$(tool llvm-profdata) || {
    echo "coverage.sh: rustc has LLVM $major, and there is no llvm-cov of that: rustup component add llvm-tools" >&2
    exit 1
}

# With --target build scripts are not instrumented. Symbol names and link-time optimisation are not needed here.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/coverage
export CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0 RUSTFLAGS=-Cinstrument-coverage
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
core=(crash crash_tables damage)
# Whole volumes with clients, on a simulated medium, which fails in most of these.
device=(census map_memory crash commit_order snapshots clones history stream archive grow grown_history shrink freed layouts scrub sweep write_once)
build() { # PACKAGE TEST...
    local package=$1 tests=()
    shift
    for name in "$@"; do tests+=(--test "$name"); done
    # cargo's output has the names of the binaries.
    LLVM_PROFILE_FILE=/dev/null cargo test --release --locked --target "$host" -p "$package" "${tests[@]}" --no-run 2>&1 | tee "$work/log" >&2
    sed -n "s|.*Executable tests/\(.*\)\.rs (\(.*\))|$package \1 \2|p" "$work/log" >>"$work/built"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build vellum-core "${core[@]}"
build vellum-device "${device[@]}"

# One process for each: threads of one process would contend for its counters.
one() { # PACKAGE TEST [ARGUMENT...]
    local package=$1 test=$2 binary log
    shift 2
    binary=$(realpath "$(sed -n "s/^$package $test //p" "$work/built")")
    log=$(mktemp -p "$work")
    if ! (cd "crates/${package#vellum-}" && LLVM_PROFILE_FILE="$work/$package.$test.%p.profraw" "$binary" "$@") >"$log" 2>&1; then
        echo "$package $test $*: FAILED"
        tail -n 40 "$log"
        return 1
    fi
}
export -f one
export work
# Fixed seeds, so that a change is not judged by what other seeds would reach.
export VELLUM_FROM=424242 VELLUM_LIVES=${LIVES:-400} VELLUM_CASES=300
{
    for name in crashes faults found; do echo "vellum-core crash --exact $name"; done
    for name in ordered_crashes ordered_faults shadow_crashes shadow_faults spare_blocks_are_lost; do echo "vellum-core crash_tables --exact $name"; done
    for name in log ordered shadow log_of_before of_before; do echo "vellum-core damage --exact $name"; done
    for name in "${device[@]}"; do echo "vellum-device $name"; done
} | xargs -P "$(nproc)" -I{} bash -c 'set -euo pipefail; one {}'

# Each binary alone: they have functions with the same name and different code.
while read -r package name binary; do
    "$profdata" merge -sparse "$work/$package.$name".*.profraw -o "$work/profile"
    "$cov" export --format=lcov --instr-profile "$work/profile" -object "$binary" --sources crates/core/src >"$work/$package.$name.lcov" 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
done <"$work/built"
[ -z "${KEEP:-}" ] || { mkdir -p "$KEEP" && cp "$work"/*.lcov "$KEEP"; }
unset RUSTFLAGS CARGO_TARGET_DIR
cargo run --quiet --locked -p xtask -- coverage ${SHRINK:+--shrink} "$work"/*.lcov
