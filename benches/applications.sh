#!/usr/bin/env bash
# `make bench-applications`: real applications on a volume with default options, compared with ext4, XFS and btrfs with zstd on plain
# storage: bytes that reach the medium, time, processor time. Rewrites docs/benchmarks/applications.md and .csv.
#
# Plain storage is a file under a loop device, with direct I/O. A volume is a file in the same place, created by `vellum create`, attached
# by `vellum attach --mkfs --mount`. The kernel counts what reaches the file: in the loop device's counters, and in the bytes written by the
# server process, read when it has ended (orphans.py). The window is from the mount to the end of the unmount and of the server: nothing is
# left for later. The time is the application's and the unmount's. What an application needs beforehand is created before the window, on the
# same file system.
#
# After each run all files are read back from the medium and compared, and the file system is checked.
#
#     ROUNDS=3            medians of so many
#     STATES='fresh aged' aged: 90% full, and as much written over it three times; fresh alone if not said
#     LIMIT=20M           storage that takes and gives so many bytes a second: an SD card. Below, the medium is a device
#     ONLY=etcd,mail      some of the applications
#     PROPERTIES='A B'    also volumes with one or more properties given, such as compress=off or compress=off,delta=off
#     CONFIGURATIONS='ordered vellum'  some of the configurations
#     MEDIUM=device       volumes lie on the loop device too, whose counters must agree with what the server has written
#     SCALE=100           the applications' work, in per cent
#     QUICK=1             small, and no document
#     CAUSES=FILE         adds what each run wrote to the file, prints it by cause (applications_causes.py), and writes no document
#
# The rows selected by ONLY, CONFIGURATIONS and PROPERTIES are replaced in the document; the others stay as they were measured.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

ROUNDS=${ROUNDS:-1} STATES=${STATES:-fresh} MEDIUM=${MEDIUM:-file} scale=${SCALE:-100}
volume=2G
[ -z "${QUICK:-}" ] || scale=${SCALE:-10}
# The limit is on the medium here, below all configurations; servers.sh has one for servers.
limit=${LIMIT:-}
unset LIMIT
[ -z "$limit" ] || MEDIUM=device

# A name, a title, and the command: a program of tests/workloads, its size in per cent of the usual, and its parameters.
applications=(
    'etcd|etcd, a Kubernetes control plane|etcd 100'
    'redis|Redis, appendfsync always|redis 100'
    'mariadb|MariaDB, sysbench|mariadb 100'
    'postgresql|PostgreSQL, pgbench|pgbench 200'
    'sqlite-wal|SQLite, WAL|sqlite 200 wal'
    'sqlite|SQLite, rollback journal|sqlite 100'
    'rocksdb|RocksDB, Snappy|kv 200 1024 snappy'
    'influxdb|InfluxDB, metrics|influxdb 100'
    'packages|apt update and dpkg --unpack|packages 30'
    'containers|container images, two versions|containers 100'
    'machine|image of a virtual machine|machine 100'
    'git|git: clone, check out, commit, repack|repository 100'
    'compile|a compile of C|compile 100'
    'logs|logs, synced and rotated|logs 100'
    'mail|mail: queue and maildir|mail 100'
)
configurations=(ordered xfs btrfs vellum)
[ -z "${CONFIGURATIONS:-}" ] || read -ra configurations <<<"$CONFIGURATIONS"
for property in ${PROPERTIES:-}; do configurations+=("vellum $property"); done

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo 'bench-applications: it needs root, /dev/fuse and /dev/loop-control' >&2
    exit 1
fi
for tool in jq losetup python3 mkfs.ext4 e2fsck mkfs.xfs xfs_repair mkfs.btrfs ${limit:+nbdkit nbdinfo nbdfuse fusermount3}; do
    command -v "$tool" >/dev/null || { echo "bench-applications: no $tool: run scripts/setup.sh applications" >&2; exit 1; }
done
VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
export VELLUM
if [ -z "${ORPHANS:-}" ]; then
    ORPHANS=$(mktemp)
    export ORPHANS LIMIT=$limit
    exec benches/orphans.py "$ORPHANS" benches/applications.sh
fi

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-applications.XXXXXX")
# Databases run as other users, and must be able to open their files.
chmod 755 "$dir"
mkdir -m 755 "$dir/mnt" "$dir/sources"
# shellcheck source=benches/servers.sh
. benches/servers.sh
# shellcheck source=benches/applications_storage.sh
. benches/applications_storage.sh
trap 'let_go; cleanup; rm -f "$ORPHANS"' EXIT
trap 'exit 130' INT TERM
rows=$dir/rows

# The same for all rows of a run.
commit=$(git rev-parse --short HEAD) today=$(date -u +%Y-%m-%d)

run() { # FLAGS...: the application in the mounted file system
    local status=0
    "tests/workloads/${words[0]}.py" "$@" --sources "$dir/sources" "$dir/mnt" "$((words[1] * scale / 100))" "${words[@]:2}" >"$dir/out" 2>&1 || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || { echo "bench-applications: $name, $configuration: failed" >&2; cat "$dir/out" >&2; exit 1; }
    return "$status"
}

one() { # whether the application could be run
    made
    opened
    run --prepare || { closed; return 1; }
    closed
    window_begins
    opened
    run || { closed; return 1; }
    local seconds operations begin end digest check_seconds
    seconds=$(awk '/operations in/ { print $4 }' "$dir/out") operations=$(awk '/operations in/ { print $1 }' "$dir/out")
    digested
    begin=$(seconds_now)
    unmounted
    end=$(seconds_now)
    asked_server
    closed
    seconds=$(awk -v run="$seconds" -v begin="$begin" -v end="$end" 'BEGIN { printf "%.3f", run + end - begin }')
    window_ends
    sound "$digest"
    local IFS=$'\t'
    local row=("$state" "${limit:-none}" "$name" "$configuration" "$round" "$medium_bytes" "$host_bytes" "$syncs" "$operations" "$seconds" "$server_seconds")
    printf '%s\n' "${row[*]}"$'\t'"$commit"$'\t'"$today" >>"$rows"
    [ -z "${CAUSES:-}" ] || printf '%s\t%s\t%s\t%s\n' "$name" "$configuration" "$medium_bytes" "$(! is_volume || jq -c . "$dir/stats")" >>"$CAUSES"
    printf '%s, round %s  %-12s %-28s %9.2f MiB %8s s\n' "$state" "$round" "$name" "$configuration" "$(awk -v b="$medium_bytes" 'BEGIN { print b / 1048576 }')" "$seconds"
}

begun=$(date +%s)
skipped=()
for ((round = 1; round <= ROUNDS; round++)); do
    for state in $STATES; do
        for entry in "${applications[@]}"; do
            IFS='|' read -r name title command <<<"$entry"
            [[ -z "${ONLY:-}" || ",$ONLY," == *",$name,"* ]] || continue
            read -ra words <<<"$command"
            for configuration in "${configurations[@]}"; do
                one || { skipped+=("$title: $(sed -n 's/^SKIP: //p' "$dir/out")"); break; }
            done
        done
    done
done
for what in "${skipped[@]}"; do echo "not measured: $what"; done | sort -u
echo "took $(($(date +%s) - begun)) s"
[ -s "$rows" ] || exit 1
[ -z "${CAUSES:-}" ] || { benches/applications_causes.py "$CAUSES"; exit 0; }

# New rows replace those of the same measurement.
kept=docs/benchmarks
[ -z "${QUICK:-}" ] || kept=$dir
benches/applications_figures.py merge "$kept/applications.csv" "$rows"
printf '%s\n' "${applications[@]}" >"$dir/titles"
benches/applications_figures.py table "$kept/applications.csv" "$dir/titles" >"$dir/table"
cat "$dir/table"
[ -n "${QUICK:-}" ] || { cp "$dir/table" "$kept/applications.md"; echo "written to $kept/applications.md and .csv"; }
