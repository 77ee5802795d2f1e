#!/usr/bin/env bash
# The speed of the lab: `make bench-lab`. Requests a second of processor time and memory for each simulated page, of 4 KiB random overwrites
# on a full drive (greedy collector, 15% over-provisioning): timed, counted only, and with deduplication. CAPACITY=4G and LARGE=8G for
# smaller drives; HUGE=4T adds a drive of that size, of which a million blocks are overwritten.
# The time includes preparing the drive, whose writes are not counted, so the true figures are higher.
set -euo pipefail
cd "$(dirname "$0")/.."
VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
command -v jq >/dev/null && command -v python3 >/dev/null || { echo "bench-lab: it needs jq and python3"; exit 2; }
[ -x "$VELLUM" ] || { echo "bench-lab: $VELLUM is missing: cargo build --release -p vellum-cli"; exit 2; }
capacity=${CAPACITY:-16G}
large=${LARGE:-64G}
huge=${HUGE:-}

# Runs it; prints requests, pages, CPU seconds and peak memory.
measured() {
    python3 - "$@" <<'PY'
import json, resource, subprocess, sys
out = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout
used = resource.getrusage(resource.RUSAGE_CHILDREN)
run = json.loads(out)[0]
cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
print(f"{run['requests']} {run['physical_blocks']} {cpu:.1f} {run['requests'] / cpu:.0f} {memory / run['physical_blocks']:.1f} {run['write_amplification']:.3f}")
PY
}

row() {
    local name=$1 size=$2 policy=$3
    shift 3
    local load=(--workload uniform --device oftl --op 15 --precondition fill --capacity "$size" --policy "$policy" --json "$@")
    read -r requests pages cpu speed bytes amplification < <(measured "$VELLUM" lab run "${load[@]}")
    echo "| $name | $size | \`$policy\` | $requests | $pages | $cpu | $speed | $bytes | $amplification |"
}

echo "Load averages at the start: $(cut -d' ' -f1-3 /proc/loadavg)"
echo
echo "| run | drive | policy | requests | pages | CPU seconds | requests a CPU second | B a page | write amplification |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
row timed "$capacity" base
row "counted only" "$capacity" base --untimed
row "counted only" "$large" base --untimed
row timed "$capacity" vellum
row "counted only" "$capacity" vellum --untimed
row "timed, 20% duplicates" "$capacity" vellum:dedup --duplicates 20
row "timed, 20% duplicates, index of 16 MiB" "$capacity" vellum:dedup,dedup-memory=16M --duplicates 20
[ -z "$huge" ] || row "counted only, a million requests" "$huge" base --untimed --requests 1000000
