#!/usr/bin/env bash
# The cost of a map within bounds (docs/decisions/0058): MAP_MEMORY="all 16M" benches/map_memory.sh
#
# A volume of SIZE in a sparse file; WRITES writes of 4 KiB, nearly each in another 4 MiB, so nearly each to another leaf of the map: the
# worst case for it. Then the volume is stopped and opened again, and as many blocks are read, and written, in the same way. The columns
# from there on are of that second time; each-reads: what the server reads for itself for each request. Needs root, fio and about 4 GiB.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
MAP_MEMORY=${MAP_MEMORY:-all 16M}
SIZE=${SIZE:-1T}
WRITES=${WRITES:-256000}
DEPTH=${DEPTH:-32}
# The alignment of requests: 4k has many in each leaf.
ALIGN=${ALIGN:-4m}
# The share of zeros in each block, in per cent: compressible blocks are stored in parts of pages, which have leaves of their own.
ZEROS=${ZEROS:-0}
# Another property: buffer=8M leaves little memory to what is in flight.
SET=${SET:-buffer=64M}

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-map.XXXXXX")
cleanup() {
    set +e
    "$VELLUM" detach "$dir/map.vol" >/dev/null 2>&1
    rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

attach() {
    device=$("$VELLUM" attach "$dir/map.vol" </dev/null | cut -d' ' -f1)
    server=$("$VELLUM" list --json </dev/null | jq -r ".[] | select(.path == \"$dir/map.vol\").pid")
}
# load HOW WHAT SEED: requests a second
load() {
    fio --name=map --filename="$device" --rw="$1" --bs=4k --blockalign="$ALIGN" --norandommap --randrepeat=0 --randseed="$3" \
        --direct=1 --refill_buffers --buffer_compress_percentage="$ZEROS" --ioengine=libaio --iodepth="$DEPTH" --number_ios="$WRITES" --output-format=json 2>/dev/null |
        jq -r ".jobs[0].$2.iops | round"
}
memory() { awk '/VmRSS/ { printf "%d MB", $2 / 1024 }' "/proc/$server/status"; }
# The server's own reads so far, in blocks: leaves of the map and of pages, and parities.
own_reads() { echo $(($(blocks read_metadata_bytes) / 4096)); }
# per FROM TO: for each request
per() { awk -v n="$(($2 - $1))" -v all="$WRITES" 'BEGIN { printf "%.2f", n / all }'; }
blocks() { "$VELLUM" stats "$dir/map.vol" --json </dev/null | jq -r "[.. | objects | .$1? // empty] | first // 0"; }

row() { printf '%-10s %9s %8s %9s %9s %10s %8s %9s %10s %8s %12s\n' "$@"; }
row map-memory fill/s memory opening reads/s each-reads memory writes/s each-reads memory map-written
for most in $MAP_MEMORY; do
    rm -f "$dir/map.vol"
    "$VELLUM" create "$dir/map.vol" --size "$SIZE" --set "map-memory=$most" --set "$SET" >/dev/null
    attach
    fill=$(load randwrite write 1)
    filled=$(memory)
    "$VELLUM" detach "$dir/map.vol" >/dev/null
    began=$(date +%s%N)
    attach
    opening=$(((($(date +%s%N) - began)) / 1000000))
    first=$(own_reads)
    reads=$(load randread read 2)
    read=$(memory)
    second=$(own_reads)
    writes=$(load randwrite write 3)
    third=$(own_reads)
    row "$most" "$fill" "$filled" "$opening ms" "$reads" "$(per "$first" "$second")" "$read" \
        "$writes" "$(per "$second" "$third")" "$(memory)" "$(blocks medium_map)"
    "$VELLUM" detach "$dir/map.vol" >/dev/null
done
