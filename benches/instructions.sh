#!/usr/bin/env bash
# Instructions that the core takes for a write and for a read of 4 KiB, counted by callgrind: noise of the machine does not
# decide. The medium of the benchmark, which is instant, is counted too.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo 'SKIP: there is no valgrind here'; exit 0; }
requests=100000 # COUNTED in crates/core/benches/core.rs
bench=$(cargo bench --locked -p vellum-core --bench core --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*core-[^"]*\)".*/\1/p' | tail -1)
for what in writes reads; do
    collected=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
        --toggle-collect="*counted_$what*" "$bench" instructions 2>&1 | sed -n 's/.*Collected : //p')
    printf '%-7s %8d instructions each\n' "$what" $((collected / requests))
done
