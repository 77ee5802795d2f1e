#!/usr/bin/env bash
# How many of a drive's erasures remain: PostgreSQL's pgbench and a compile, once on ext3 in data=ordered on plain storage, which CSA-FS
# compares itself with, and once on ext4 in data=journal on a volume with write-once, compression and deltas. Both are recorded, and both
# traces are replayed in the lab on the same simulated drive, which is filled first, repeatedly, so that it has to collect.
#
# The drive's blocks are the paper's (the device `csafs`). Writes and erasures are counted, and no time is measured, so the machine may be
# busy. Sizes are zstd's. Needs root, /dev/fuse and loop devices; prints a table (docs/benchmarks/packing.md).
#
#     benches/erasures.sh          SCALE=100 the loads' size in per cent, ONLY=REGEX some of them, KEEP=DIR keeps the traces
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
scale=${SCALE:-100} volume=1G flash=1200M
loads=('pgbench' 'build')

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo 'erasures: it needs root, /dev/fuse and /dev/loop-control' >&2
    exit 1
fi
dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-erasures.XXXXXX")
# PostgreSQL runs as another user, and must be able to open its files.
chmod 755 "$dir"
mkdir -m 755 "$dir/mnt" "$dir/sources"
# shellcheck source=benches/servers.sh
. benches/servers.sh
trap cleanup EXIT
trap 'exit 130' INT TERM

# recorded NAME FILE-SYSTEM MOUNT-OPTIONS SERVER...: the load's window, from the mount to the end of the unmount, in $dir/NAME.
recorded() {
    local name=$1 type=$2 options=$3
    shift 3
    start "$@"
    : >"$dir/chain.img"
    nbdfuse "$dir/chain.img" "$(socket_uri)" &
    pids+=("$!")
    until [ "$(stat -c %s "$dir/chain.img")" -ne 0 ]; do sleep 0.02; done
    loop=$(losetup --find --show --direct-io=on "$dir/chain.img")
    loops+=("$loop")
    [ "$type" = prepared ] || {
        "mkfs.$type" -q -F -b 4096 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    }
    mount -o "$options" "$loop" "$dir/mnt"
    mounts+=("$dir/mnt")
    "tests/workloads/$load.py" $([ "$type" = prepared ] || echo --prepare) --sources "$dir/sources" "$dir/mnt" "$scale" >"$dir/out" 2>&1 ||
        { cat "$dir/out" >&2; exit 1; }
    umount "$dir/mnt"
    mounts=()
    losetup -d "$loop"
    loops=()
    until fusermount3 -u "$dir/chain.img" 2>/dev/null; do sleep 0.02; done
    wait "${pids[-1]}" || true
    unset 'pids[-1]'
    stop
}

replayed() { # TRACE POLICY
    "$VELLUM" lab run "$dir/$1" --untimed --depth 32 --in-place --device csafs --capacity "$flash" --op 17.1 --precondition fill \
        --repeat "$repeat" --policy "$2" --json
}

echo '| load | rounds | host MiB: ext3, ours | flash MiB: ext3, ours | of ours | erasures: ext3, ours | fewer | asked |'
echo '| --- | ---: | ---: | ---: | --- | ---: | ---: | --- |'
for load in "${loads[@]}"; do
    [[ $load =~ ${ONLY:-.} ]] || continue
    case $load in pgbench) repeat=100 asked=73 ;; *) repeat=8 asked=64 ;; esac
    rm -f "$dir/store" "$dir/plain" "$dir/journal"
    truncate -s "$volume" "$dir/store"
    recorded before ext3 data=ordered nbdkit -f -U "$dir/socket" file "$dir/store"
    recorded plain prepared data=ordered "$VELLUM" record "v=$dir/store" --output "$dir/plain" --socket "$dir/socket"
    rm -f "$dir/store"
    "$VELLUM" create "$dir/store" --size "$volume" >/dev/null
    recorded before ext4 data=journal,journal_async_commit "$VELLUM" serve "v=$dir/store" --socket "$dir/socket"
    recorded journal prepared data=journal,journal_async_commit \
        "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" --record "$dir/journal" --record-sizes zstd
    replayed plain base >"$dir/base.json"
    replayed journal vellum:write-once,replay,compress,delta >"$dir/vellum.json"
    [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP"; cp "$dir/plain" "$KEEP/$load-ext3"; cp "$dir/journal" "$KEEP/$load-journal"; }
    jq -nr --arg load "$load" --argjson rounds "$repeat" --argjson asked "$asked" --slurpfile base "$dir/base.json" --slurpfile vellum "$dir/vellum.json" '
        def mib: . * 4096 / 1048576 | round;
        $base[0][0] as $b | $vellum[0][0] as $v
        | (100 * (1 - $v.life.erases / $b.life.erases) | round) as $fewer
        | "| \($load) | \($rounds) | \($b.host_written | mib), \($v.host_written | mib) | \($b.programmed | mib), \($v.programmed | mib) | " +
            ([$v.medium[] | select(.blocks > 0) | "\(.name) \(.blocks | mib)"] | join(", ")) +
            " | \($b.life.erases), \($v.life.erases) | \($fewer)% | \($asked)%: \(if $fewer >= $asked then "yes" else "**no**" end) |"'
done
