#!/usr/bin/env bash
# `make bench`: the device against its peers, in one run on one machine. Rewrites docs/benchmarks/device.md.
#
# Peers: nbdkit's memory plugin (the transport's limit), nbdkit's file plugin, and a plain file under a loop device. Each number is the
# median of ROUNDS rounds, in which the peers take turns, so that a slow moment of the machine hits all of them. QUICK=1 is for testing the
# script: small, and it writes no document.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
ROUNDS=${ROUNDS:-3}
volume=4G
writes=1G
reads=256M
seconds=5
mapped=(1 2 4 8)
if [ -n "${QUICK:-}" ]; then
    ROUNDS=1 volume=1G writes=64M reads=32M seconds=1 mapped=(1)
fi

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-bench.XXXXXX")
results=$dir/results
# shellcheck source=benches/servers.sh
. benches/servers.sh
trap cleanup EXIT
trap 'exit 130' INT TERM

for tool in fio nbdkit nbdinfo nbdfuse jq qemu-io; do
    command -v "$tool" >/dev/null || { echo "bench: no $tool: run scripts/setup.sh bench" >&2; exit 1; }
done

root=$([ "$(id -u)" -eq 0 ] && echo yes || echo no)
[ "$root" = yes ] || echo "bench: not root: without cold caches and without ext4" >&2

record() { # WORKLOAD PEER VALUE
    printf '%s\t%s\t%s\n' "$@" >>"$results"
    printf '   %-28s %-8s %s\n' "$@"
}

write_iops=".jobs[0].write.iops | round"
read_iops=".jobs[0].read.iops | round"
write_mbps=".jobs[0].write.bw_bytes / 1e6 | round"

over_nbd() { # PEER
    fresh "$1" "$volume"
    # Every block once: this measures the write path, not the collector.
    record 'random write, depth 32' "$1" "$(nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=32 --size="$volume" --io_size="$writes")"
    stop
    fresh "$1" "$volume"
    record 'random write, depth 1' "$1" "$(nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=1 --size="$volume" --time_based --runtime="$seconds")"
    stop
    fresh "$1" "$volume"
    record 'sequential write 128K' "$1" "$(nbd "$write_mbps" --rw=write --bs=128k --iodepth=32 --size="$writes")"
    if [ "$1" != memory ] && [ "$root" = yes ]; then
        # The data stay, but neither the server nor the kernel has them in memory.
        nbd "$write_mbps" --rw=write --bs=1M --iodepth=4 --size="$writes" --end_fsync=1 >/dev/null
        stop
        drop_caches
        serve "$1"
        record 'cold random read, depth 32' "$1" "$(nbd "$read_iops" --rw=randread --bs=4k --iodepth=32 --size="$writes" --io_size="$reads")"
    fi
    stop
}

# Appends of 4 KiB, each with an fsync, to one file on a fresh ext4.
appends() { # WORKLOAD PEER DEVICE OPTIONS
    mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$3"
    mkdir -p "$dir/mnt"
    mount -o "$4" "$3" "$dir/mnt"
    mounts+=("$dir/mnt")
    fio --name=append --directory="$dir/mnt" --ioengine=psync --rw=write --bs=4k --fsync=1 --fallocate=none \
        --refill_buffers --size=512M --runtime="$seconds" --output-format=json >"$dir/fio.json"
    record "$1" "$2" "$(sed -n '/^{/,$p' "$dir/fio.json" | jq "$write_iops")"
    umount "$dir/mnt"
    mounts=()
}

on_loop() { # WORKLOAD PEER FILE OPTIONS
    local loop
    loop=$(losetup --find --show --direct-io=on "$3")
    loops+=("$loop")
    appends "$1" "$2" "$loop" "$4"
    losetup -d "$loop"
    loops=()
}

over_ext4() {
    local journal='append + fsync, data=journal'
    local options
    for options in data=journal data=journal,journal_async_commit; do
        rm -f "$dir/store"
        "$VELLUM" create "$dir/store" --size 1G >/dev/null
        mkdir -p "$dir/fuse"
        start "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" --fuse "$dir/fuse"
        on_loop "append + fsync, $options" vellum "$dir/fuse/v" "$options"
        stop
    done

    fresh file 1G
    : >"$dir/chain.img"
    nbdfuse "$dir/chain.img" "$(socket_uri)" &
    local chain=$!
    pids+=("$chain")
    until [ "$(stat -c %s "$dir/chain.img")" -gt 0 ]; do sleep 0.05; done
    on_loop "$journal" file "$dir/chain.img" data=journal
    fusermount3 -u "$dir/chain.img"
    wait "$chain" || true
    unset 'pids[-1]'
    stop

    rm -f "$dir/store"
    truncate -s 1G "$dir/store"
    on_loop "$journal" plain "$dir/store" data=journal
}

memory() {
    fresh vellum 1T
    nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=32 --size=1G --io_size="$reads" >/dev/null
    record 'RSS, sparse 1 TiB' vellum "$(rss_mib "$server")"
    stop
    fresh vellum 1G
    nbd "$write_mbps" --rw=write --bs=1M --iodepth=4 --size=1G --end_fsync=1 >/dev/null
    record 'RSS, full 1 GiB' vellum "$(rss_mib "$server")"
    sleep 6 # until nothing is left to do: an unsealed chunk waits five seconds
    local before
    before=$(cpu_ticks "$server")
    sleep 10
    record 'idle, CPU ticks in 10 s' vellum "$(($(cpu_ticks "$server") - before))"
    stop
}

# A volume filled and overwritten at random once: the collector in steady state.
collecting() {
    fresh vellum 1G
    nbd "$write_mbps" --rw=write --bs=1M --iodepth=4 --size=1G >/dev/null
    nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=32 --size=1G --io_size="$writes" --norandommap >/dev/null
    record 'random overwrite, full volume' vellum "$(nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=32 --size=1G --time_based --runtime="$seconds" --norandommap)"
    stop
}

# The cost of a file's unallocated space, compared with allocating all of it when the volume is created.
over_space() {
    local kind begin flags
    for kind in sparse preallocated; do
        flags=()
        [ "$kind" = sparse ] || flags=(--preallocate)
        rm -f "$dir/store"
        begin=$(seconds_now)
        "$VELLUM" create "$dir/store" --size "$writes" "${flags[@]}" >/dev/null
        record 'space: create' "$kind" "$(awk -v a="$begin" -v b="$(seconds_now)" 'BEGIN { printf "%.2f", b - a }')"
        serve vellum
        record 'space: 4 KiB write + flush, depth 1' "$kind" "$(nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=1 --fsync=1 --size="$writes" --time_based --runtime="$seconds")"
        record 'space: random write, depth 32' "$kind" "$(nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=32 --size="$writes" --io_size="$reads" --end_fsync=1)"
        record 'space: sequential write 128K' "$kind" "$(nbd "$write_mbps" --rw=write --bs=128k --iodepth=32 --size="$writes" --io_size="$reads" --end_fsync=1)"
        stop
    done
}

# From the start of the server to its first answered read, after kill -9 under load.
restarts() {
    local gib begin
    for gib in "${mapped[@]}"; do
        fresh vellum "$((gib + 1))G"
        nbd "$write_mbps" --rw=write --bs=1M --iodepth=4 --size="${gib}G" >/dev/null
        nbd "$write_iops" --rw=randwrite --bs=4k --iodepth=32 --size="${gib}G" --io_size=64M >/dev/null
        crash
        [ "$root" = no ] || drop_caches
        begin=$(seconds_now)
        serve vellum
        qemu-io -r -f raw -c 'read -q 1G 4k' "$(socket_uri)"
        record "first I/O after kill -9, $gib GiB mapped" vellum "$(awk -v a="$begin" -v b="$(seconds_now)" 'BEGIN { printf "%.2f", b - a }')"
        record "first I/O: recovery alone, $gib GiB" vellum \
            "$("$VELLUM" stats "$dir/store" --json | jq '.[0].stats.recovery.micros / 1e6')"
        stop
        "$VELLUM" check "$dir/store" >/dev/null
    done
    # In one process, with the fault injector's cache between it and the file.
    gib=${mapped[-1]}
    rm -f "$dir/store"
    local cut
    cut=$(cargo run --locked -q --release -p vellum-device --example recovery -- "$dir/store" "$gib" 100 10000 cut)
    record "first I/O after a power cut, $gib GiB mapped" vellum "$(sed -n 's/.*first read after \([0-9.]*\) s;.*/\1/p' <<<"$cut")"
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    for peer in memory file vellum; do over_nbd "$peer"; done
    [ "$root" = no ] || over_ext4
    collecting
    over_space
done
echo 'once'
memory
restarts

benches/table.sh "$results" "$ROUNDS" "$volume" "$writes" >"$dir/device.md"
# The core alone, without I/O. It prints its targets, and whether they are met.
if [ -z "${QUICK:-}" ]; then
    {
        printf '\n## The core alone\n\n`cargo bench -p vellum-core`: writes of 4 KiB without I/O on one core, and the write\n'
        printf 'amplification of uniform random overwrites against the greedy closed form.\n\n```\n'
        cargo bench --locked -q -p vellum-core --bench core 2>"$dir/core.err" || echo '(not all that was asked is met)'
        printf '```\n'
    } >>"$dir/device.md"
fi
cat "$dir/device.md"
if [ -z "${QUICK:-}" ]; then
    mkdir -p docs/benchmarks
    cp "$dir/device.md" docs/benchmarks/device.md
    echo 'written to docs/benchmarks/device.md'
fi
