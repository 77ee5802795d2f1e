#!/usr/bin/env bash
# Commit blocks over ublk with four queues: `async_commit` of the command's tests, in a guest with four processors. LIVES=n sets the number
# of lives (a few by default), SEED=n the first, LAYOUT=log or shadow, MIB=n and CUT=AfterFlush the size of commits and the kind of cuts.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh guest || { echo "SKIP: guest: QEMU cannot be had here"; exit 0; }
lives=${LIVES:-4}
target=${CARGO_TARGET_DIR:-target}
export VELLUM=${VELLUM:-$target/release/vellum}
[ -x "$VELLUM" ] || cargo build --release --locked -p vellum-cli

found=$(cargo test --release --locked --no-run --message-format=json -p vellum-cli --test async_commit |
    sed -n 's/.*"name":"async_commit".*"executable":"\([^"]*\)".*/\1/p' | tail -1)
[ -x "$found" ] || { echo "async_ublk: there is no test to run"; exit 1; }
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-async.XXXXXX")
trap 'rm -rf "$dir"' EXIT
strip -o "$dir/async_commit" "$found"

code=0
CPUS=4 MEMORY=${MEMORY:-2048} PATIENCE=${PATIENCE:-$((300 + lives * 60))} PATH="$PATH:$dir:/usr/sbin:/sbin" TOOLS='async_commit debugfs' \
    tests/guest/run.sh tests/guest/async_commit.sh "$lives" "${SEED:-0}" "${LAYOUT:-log}" "${MIB:--}" "${CUT:--}" || code=$?
[ "$code" -ne 77 ] || { echo "SKIP: guest: none can be made here"; exit 0; }
[ "$code" -eq 0 ] || { echo "async_ublk: FAILED ($code)"; exit 1; }
echo "async_ublk: passed"
