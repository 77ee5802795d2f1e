#!/usr/bin/env bash
# The cost of reading a block that shares its page: random reads of 4 KiB, one at a time, from a volume that was stopped and served again,
# of whole blocks, of compressed ones, and of deltas. Prints the table in docs/benchmarks/fragments.md.
#
# The same 64 MiB over NBD; the configurations take turns within a round, figures are medians. ROUNDS=3; QUICK=1 is for testing the script.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
ROUNDS=${ROUNDS:-3}
blocks=16384 seconds=5
if [ -n "${QUICK:-}" ]; then
    ROUNDS=1 blocks=4096 seconds=1
fi
dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-fragments.XXXXXX")
results=$dir/results
# shellcheck source=benches/servers.sh
. benches/servers.sh
trap cleanup EXIT
trap 'exit 130' INT TERM
for tool in fio nbdinfo nbdfuse jq python3; do
    command -v "$tool" >/dev/null || { echo "bench-fragments: no $tool: run scripts/setup.sh bench" >&2; exit 1; }
done

declare -A policy=([whole]='compress=off' [lz4]='compress=lz4' [zstd]='compress=zstd' [zstd+delta]='compress=zstd,delta=on')
configurations=(whole lz4 zstd zstd+delta)

up() { # CONFIGURATION
    start "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" --with "compress=off,delta=off,zero=off,dedup=off,${policy[$1]}"
}

fill() { # CONFIGURATION
    rm -f "$dir/store"
    "$VELLUM" create "$dir/store" --size 4G >/dev/null
    up "$1"
    : >"$dir/chain.img"
    nbdfuse "$dir/chain.img" "$(socket_uri)" &
    local fuse=$! tries
    for ((tries = 0; tries < 500; tries++)); do
        [ "$(stat -c %s "$dir/chain.img")" -eq 0 ] || break
        sleep 0.02
    done
    benches/fragments_fill.py "$dir/chain.img" "$blocks"
    fusermount3 -u "$dir/chain.img"
    wait "$fuse" || true
    stop
}

reads() { # CONFIGURATION
    up "$1"
    local before after
    before=$("$VELLUM" stats "$dir/store" --json)
    nbd '.jobs[0].read | [.clat_ns.mean / 1000, .clat_ns.percentile["50.000000"] / 1000, .clat_ns.percentile["99.000000"] / 1000, .total_ios] | @tsv' \
        --rw=randread --bs=4k --iodepth=1 --size="$((blocks * 4))k" --time_based --runtime="$seconds" | tr -d '"' | sed 's/\\t/\t/g' >"$dir/row"
    after=$("$VELLUM" stats "$dir/store" --json)
    stop
    jq -rn --argjson a "$before" --argjson b "$after" --arg row "$(cat "$dir/row")" --arg who "$1" '
        def grew(f): ($b[0].stats | f) - ($a[0].stats | f);
        [$who] + ($row | split("\t")) + [grew(.core.packed_reads), grew(.core.base_reads)] | @tsv' | tee -a "$results"
}

for ((round = 1; round <= ROUNDS; round++)); do
    for configuration in "${configurations[@]}"; do
        fill "$configuration"
        reads "$configuration"
    done
done

echo
awk -F'\t' "$(cat benches/median.awk)"'
    { for (i = 2; i <= 7; i++) all[$1, i] = all[$1, i] " " $i }
    function of(who, i) { return median(all[who, i]) }
    END {
        print "| | median, us | mean, us | 99%, us | median to whole blocks | asked | of the reads: of a part of a page | of a base beside it |"
        print "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |"
        n = split("whole lz4 zstd zstd+delta", who, " ")
        for (i = 1; i <= n; i++) {
            w = who[i]; ratio = of(w, 3) / of("whole", 3)
            printf "| %s | %.1f | %.1f | %.1f | %.2f | %s | %.0f%% | %.0f%% |\n", w, of(w, 3), of(w, 2), of(w, 4), ratio,
                w == "whole" ? "" : "at most 1.3: " (ratio <= 1.3 ? "yes" : "**no**"), 100 * of(w, 6) / of(w, 5), 100 * of(w, 7) / of(w, 5)
        }
    }' "$results"
