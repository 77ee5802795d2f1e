#!/usr/bin/env bash
# `make bench-journal`: a real ext4 in data=journal on a volume with write-once journaling, against the same on plain storage and against
# data=ordered. Rewrites docs/benchmarks/journal.md.
#
# Every configuration has the same chain: an NBD server -> nbdfuse -> loop -> ext4. Plain storage is nbdkit's file plugin. What the file
# system sent is read from the loop device's own counters, what reached the medium from the server's. The window is from the mount to the
# end of the unmount, so that no checkpoint write is left out; the time is from the workload's first operation to the end of the unmount.
# Configurations take turns within a round; figures are medians.
#
# PACKING=1 (`make bench-packing`) compares storage in parts of pages instead, and rewrites docs/benchmarks/packing.md; LAYOUTS=1 (`make
# bench-layouts`) compares the layouts, with loads that have duplicates, and rewrites docs/benchmarks/layouts-device.md.
#
# LIMIT=100M limits the servers to that many bytes a second on their disk, by a control group (root), which imitates an eMMC instead of a
# file as fast as this machine's memory. It rewrites journal-limited.md or packing-limited.md.
#
# QUICK=1 is for testing the script: small, one round, and it writes no document. ONLY=REGEX selects workloads, CONFIGURATIONS="a b"
# configurations; neither writes one.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
ROUNDS=${ROUNDS:-3}
scale=${SCALE:-100}
volume=2G
if [ -n "${QUICK:-}" ]; then
    ROUNDS=1 scale=${SCALE:-10} volume=1G
fi

# A name and its command: a file of tests/workloads, and its parameters.
workloads=(
    'sequential, fsync each 1=writes sequential 1'
    'sequential, fsync each 10=writes sequential 10'
    'sequential, fsync each 100=writes sequential 100'
    'sequential, fsync each 1000=writes sequential 1000'
    'random, fsync each 1=writes random 1'
    'random, fsync each 10=writes random 10'
    'random, fsync each 100=writes random 100'
    'random, fsync each 1000=writes random 1000'
    'copy of an image=image'
    'copy of a source tree=tree'
    'git clone=clone'
    'SQLite=sqlite'
    'PostgreSQL, pgbench=pgbench'
    'RocksDB puts of 128 B=kv 128'
    'RocksDB puts of 1 KiB=kv 1024'
    'RocksDB puts of 16 KiB=kv 16384'
    'varmail=varmail'
    'fileserver=fileserver'
)
[ -z "${PACKING:-}" ] || workloads+=(
    'sequential, fsync each 100, reserved=writes sequential 100 reserved'
    'random, fsync each 10, reserved=writes random 10 reserved'
    'a compile=build'
)
if [ -n "${LAYOUTS:-}" ]; then
    workloads=(
        'random, fsync each 32=writes random 32'
        'sequential, fsync each 100=writes sequential 100'
        'backups=backups'
        'package index and installation=packages'
        'sort=sort'
        'frames of a camera=frames'
        'copy of an image=image'
        'YCSB, workload A=ycsb'
        'browsing=browse'
        'varmail=varmail'
    )
fi

# shellcheck source=benches/journal_configurations.sh
. benches/journal_configurations.sh
dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-journal.XXXXXX")
# PostgreSQL runs as another user, and must be able to open its files.
chmod 755 "$dir"
results=$dir/results
mkdir -m 755 "$dir/mnt" "$dir/sources"
# shellcheck source=benches/servers.sh
. benches/servers.sh
trap cleanup EXIT
trap 'exit 130' INT TERM

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo 'bench-journal: it needs root, /dev/fuse and /dev/loop-control' >&2
    exit 1
fi
for tool in nbdkit nbdinfo nbdfuse jq mkfs.ext4 e2fsck losetup fusermount3 python3 git dumpe2fs debugfs; do
    command -v "$tool" >/dev/null || { echo "bench-journal: no $tool: run scripts/setup.sh journal" >&2; exit 1; }
done

record() { # KEY VALUE
    printf '%s\t%s\t%s\t%s\n' "$workload" "$configuration" "$1" "$2" >>"$results"
}

workload_run() { # FLAGS: the workload in the mounted file system
    local words
    read -ra words <<<"$command"
    "tests/workloads/${words[0]}.py" "$@" --sources "$dir/sources" "$dir/mnt" "$scale" "${words[@]:1}"
}

one() {
    local loop options=${mount_options[$configuration]} status=0
    skipping=no
    up
    "mkfs.${file_system[$configuration]:-ext4}" -q -F -b 4096 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    # What must be there beforehand is created with the same options, and is home before the window begins.
    mounted
    workload_run --prepare >"$dir/out" 2>&1 || status=$?
    unmounted
    if [ "$status" -eq 0 ]; then
        local first before after begin
        first=$(commits)
        [ "$configuration" != traced ] || : >"$dir/trace"
        settled
        before=$(counters)
        mounted
        workload_run >"$dir/out" 2>&1 || status=$?
        if [ "$status" -eq 0 ]; then
            begin=$(seconds_now)
            unmounted
            sum "$(awk '/operations in/ { print $4 }' "$dir/out")" "$begin" "$(seconds_now)"
            settled
            after=$(counters)
            difference "$before" "$after"
            [ "$configuration" != traced ] || reasons
            record commits "$(($(commits) - first))"
        else
            unmounted
        fi
    fi
    if [ "$status" -eq 0 ]; then
        e2fsck -fn "$loop" >"$dir/fsck" 2>&1 || { cat "$dir/fsck" >&2; exit 1; }
    fi
    down
    if [ "$status" -eq 77 ]; then
        cat "$dir/out"
        skipped+=("$workload: $(sed -n 's/^SKIP: //p' "$dir/out")")
        skipping=yes
    elif [ "$status" -ne 0 ]; then
        cat "$dir/out" >&2
        exit 1
    fi
}

sum() { # SECONDS BEGIN END: the time, and operations a second
    awk -v run="$1" -v begin="$2" -v end="$3" 'BEGIN { printf "%.3f", run + end - begin }' >"$dir/seconds"
    record seconds "$(cat "$dir/seconds")"
    record operations "$(awk '/operations in/ { print $1 }' "$dir/out")"
    record rate "$(awk -v s="$(cat "$dir/seconds")" '/operations in/ { printf "%.1f", $1 / s }' "$dir/out")"
}

difference() { # BEFORE AFTER: what each counter grew by; those that went down are gauges
    jq -rn --argjson before "$1" --argjson after "$2" \
        '$after | to_entries[] | select(.value != null) | [.key, .value - ($before[.key] // 0)] | @tsv' |
        while IFS=$'\t' read -r key value; do record "$key" "$value"; done
}

reasons() { # why there was a flush
    debugfs -R 'blocks <8>' "$loop" >"$dir/journal" 2>/dev/null
    benches/journal_flushes.py "$dir/journal" <"$dir/trace" |
        while IFS=$'\t' read -r key value; do record "$key" "$value"; done
}

begun=$(date +%s)
skipped=()
for ((round = 1; round <= ROUNDS; round++)); do
    for entry in "${workloads[@]}"; do
        workload=${entry%%=*} command=${entry#*=}
        [[ $command =~ ${ONLY:-.} ]] || continue
        for configuration in "${configurations[@]}"; do
            [ -z "${once[$configuration]:-}" ] || [ "$round" -eq 1 ] || continue
            [[ $command =~ ${loads_of[$configuration]:-.} ]] || continue
            one
            [ "$skipping" = no ] || break
            printf 'round %s  %-28s %-10s %8s s\n' "$round" "$workload" "$configuration" "$(cat "$dir/seconds")"
        done
    done
done

table=journal
[ -z "${PACKING:-}" ] || table=packing
[ -z "${LAYOUTS:-}" ] || table=layouts
document=${table/layouts/layouts-device}${LIMIT:+-limited}
"benches/${table}_table.sh" "$results" "$ROUNDS" "$volume" "$scale" >"$dir/$document.md"
for what in "${skipped[@]}"; do printf '\nNot measured: %s.\n' "$what"; done | sort -u >>"$dir/$document.md"
cat "$dir/$document.md"
echo "took $(($(date +%s) - begun)) s"
if [ -z "${QUICK:-}${ONLY:-}${CONFIGURATIONS:-}" ]; then
    mkdir -p docs/benchmarks
    cp "$dir/$document.md" "docs/benchmarks/$document.md"
    echo "written to docs/benchmarks/$document.md"
fi
