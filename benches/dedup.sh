#!/usr/bin/env bash
# `make bench-dedup`: what in-line deduplication costs a volume without duplicates, and gains on one with duplicates.
# Rewrites docs/benchmarks/dedup-device.md.
#
# The same volume with dedup=off and dedup=on over NBD, written by fio; the two take turns within a round, figures are medians. QUICK=1 is
# for testing the script: small, one round; WORKLOADS=one_file_many_times selects that one. Neither writes a document. LIMIT=100M limits the
# server to that many bytes a second of writes and as many of reads on its disk, by a control group (root), which imitates an eMMC. Rewrites
# docs/benchmarks/dedup-device-limited.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
ROUNDS=${ROUNDS:-5}
volume=4G writes=768M seconds=4 file=64M copies=24
if [ -n "${QUICK:-}" ]; then
    ROUNDS=1 volume=1G writes=64M seconds=1 file=8M
fi
dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-dedup.XXXXXX")
results=$dir/results
# shellcheck source=benches/servers.sh
. benches/servers.sh
document=docs/benchmarks/dedup-device.md where=
if [ -n "${LIMIT:-}" ]; then
    document=docs/benchmarks/dedup-device-limited.md
    where=" Its disk is held to $LIMIT bytes a second each way (\`LIMIT=$LIMIT\`)."
fi
trap cleanup EXIT
trap 'exit 130' INT TERM
for tool in fio nbdinfo nbdcopy jq; do
    command -v "$tool" >/dev/null || { echo "bench-dedup: no $tool: run scripts/setup.sh bench" >&2; exit 1; }
done

record() { # WORKLOAD CONFIGURATION KEY VALUE
    printf '%s\t%s\t%s\t%s\n' "$@" >>"$results"
    printf '   %-34s %-4s %-10s %s\n' "$@"
}

up() { # CONFIGURATION [FLAGS]: a fresh volume and its server
    local policy=$1
    shift
    rm -f "$dir/store"
    "$VELLUM" create "$dir/store" --size "$volume" >/dev/null
    start "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" --research "compress=off,delta=off,dedup=$policy" "$@"
}

counted() { # FIELD: of the server's counters
    "$VELLUM" stats "$dir/store" --json | jq ".[0].stats.$1"
}

iops=".jobs[0].write.iops | round"
median=".jobs[0].write.clat_ns.percentile[\"50.000000\"] / 1000"

unique() { # CONFIGURATION
    up "$1"
    record 'unique, random 4 KiB, depth 32' "$1" rate "$(nbd "$iops" --rw=randwrite --bs=4k --iodepth=32 --size="$volume" --io_size="$writes")"
    stop
    up "$1"
    record 'unique, sequential 128 KiB' "$1" rate "$(nbd "$iops" --rw=write --bs=128k --iodepth=32 --size="$writes")"
    stop
    up "$1" --buffer 16M
    record 'unique, latency with 16M of buffer' "$1" median "$(nbd "$median" --rw=randwrite --bs=4k --iodepth=1 --size="$volume" --time_based --runtime="$seconds")"
    stop
    # The smallest possible buffer. Off has nothing to sample.
    local sample=
    [ "$1" = off ] || sample=,sample=32K
    up "$1$sample" --buffer 8M
    record 'unique, latency with 8M, sampling' "$1" median "$(nbd "$median" --rw=randwrite --bs=32k --iodepth=1 --size="$volume" --time_based --runtime="$seconds")"
    stop
}

duplicates() { # CONFIGURATION
    up "$1"
    record '90% duplicates, random 4 KiB' "$1" rate "$(nbd "$iops" --rw=randwrite --bs=4k --iodepth=32 --size="$volume" --io_size="$writes" --dedupe_percentage=90)"
    record '90% duplicates, random 4 KiB' "$1" written "$(counted medium.written_bytes)"
    stop
}

one_file_many_times() { # CONFIGURATION
    local copy begun
    up "$1"
    head -c "$(numfmt --from=iec "$file")" /dev/urandom >"$dir/one"
    # Like a file system when a file is copied: each copy in a different place.
    for ((copy = 0; copy < copies; copy++)); do cat "$dir/one"; done >"$dir/many"
    begun=$(date +%s.%N)
    nbdcopy --flush "$dir/many" "$(socket_uri)"
    record "$copies copies of one file" "$1" rate "$(awk -v a="$begun" -v b="$(date +%s.%N)" -v n="$copies" 'BEGIN { print n / (b - a) }')"
    record "$copies copies of one file" "$1" written "$(counted medium.written_bytes)"
    stop
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    # What was written just before, and how much, differs between the two, so they take turns to be first.
    turns='off on'
    ((round % 2)) || turns='on off'
    for configuration in $turns; do
        for workload in ${WORKLOADS:-unique duplicates one_file_many_times}; do
            "$workload" "$configuration"
        done
    done
done

{
    cat <<TEXT
# Deduplication in the device${LIMIT:+, on a slow disk}

\`make bench-dedup\` on $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD). Medians of $ROUNDS round(s) in which \`dedup=off\` and \`dedup=on\`
take turns; a volume of $volume over NBD, $writes written by fio.$where What an index finds, and what a look-up costs: [dedup.md](dedup.md).

- Machine: $(nproc) CPUs ($(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), kernel $(uname -r | cut -d- -f1)

| | | off | on | on to off | asked |
| --- | --- | ---: | ---: | ---: | --- |
TEXT
    awk -F'\t' "$(cat benches/median.awk)"'
    { if (!(($1, $3) in seen)) { seen[$1, $3] = 1; order[++rows] = $1 "\t" $3 } all[$1, $2, $3] = all[$1, $2, $3] " " $4 }
    function verdict(ratio, limit, most) { return (most ? "at most " : "at least ") limit ": " ((most ? ratio <= limit : ratio >= limit) ? "yes" : "**no**") }
    END {
        unit["rate"] = "writes/s"; unit["median"] = "us"; unit["written"] = "MiB to the medium"
        for (i = 1; i <= rows; i++) {
            split(order[i], of, "\t")
            off = median(all[of[1], "off", of[2]]); on = median(all[of[1], "on", of[2]]); ratio = on / off
            name = of[1]; what = unit[of[2]]; asked = ""
            if (name ~ /copies/ && of[2] == "rate") { what = "copies/s"; asked = verdict(ratio, 1.0, 0) }
            else if (name ~ /^unique/ && of[2] == "rate") asked = verdict(ratio, 0.95, 0)
            else if (name ~ /16M/) asked = verdict(ratio, 1.005, 1)
            else if (name ~ /with 8M/) asked = verdict(ratio, 1.05, 1)
            else if (name ~ /^90/ && of[2] == "rate") asked = verdict(ratio, 1.3, 0)
            else if (name ~ /^90/) asked = verdict(ratio, 0.12, 1)
            scale = of[2] == "written" ? 1048576 : 1
            printf "| %s | %s | %.4g | %.4g | %.3f | %s |\n", name, what, off / scale, on / scale, ratio, asked
        }
    }' "$results"
} >"$dir/dedup-device.md"
cat "$dir/dedup-device.md"
if [ -z "${QUICK:-}${WORKLOADS:-}" ]; then
    cp "$dir/dedup-device.md" "$document"
    echo "written to $document"
fi
