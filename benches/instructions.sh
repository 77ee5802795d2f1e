#!/usr/bin/env bash
# The core's instructions for a write and for a read of 4 KiB, counted by callgrind: noise of the machine does not matter. The benchmark's
# medium, which is instant, is counted too. Fails if they are 3% more than before the core's layers were types (ce3899bf), or if bounds that
# the map does not reach cost more than 12% of a write, or 5% of a read.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo 'SKIP: there is no valgrind here'; exit 0; }
requests=100000 # COUNTED in crates/core/benches/core.rs
# CI builds without optimising across crates, and that is not what is counted here.
unset CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS
bench=$(cargo bench --locked -p vellum-core --bench core --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*core-[^"]*\)".*/\1/p' | tail -1)
declare -A counted most=([writes]=112 [reads]=105) before=([writes]=3081 [reads]=1366)
# For a map entirely in memory, and for one within bounds that it never reaches (map-memory).
for map in instructions instructions-within-bounds; do
    for what in writes reads; do
        collected=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
            --toggle-collect="*counted_$what*" "$bench" "$map" 2>&1 | sed -n 's/.*Collected : //p')
        counted[$what-$map]=$((collected / requests))
        printf '%-7s %8d %s each\n' "$what" "${counted[$what-$map]}" "$map"
    done
done
for what in writes reads; do
    ((counted[$what-instructions] * 100 <= before[$what] * 103)) ||
        { echo "$what take ${counted[$what-instructions]} instructions, and ${before[$what]} before" >&2; exit 1; }
    percent=$((counted[$what-instructions-within-bounds] * 100 / counted[$what-instructions]))
    ((percent <= most[$what])) || { echo "$what within bounds take $percent% of the instructions, ${most[$what]}% at most" >&2; exit 1; }
done
