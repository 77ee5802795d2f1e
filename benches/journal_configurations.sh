# shellcheck shell=bash disable=SC2034,SC2154
# The configurations of the journal benchmark: servers, mounts and counters. Sourced by journal.sh.

declare -A mount_options=(
    [journal]=data=journal
    [ordered]=data=ordered
    [ordered-full]=data=ordered
    [ext3]=data=ordered
    [off]=data=journal,journal_async_commit
    [on]=data=journal,journal_async_commit
    [on-full]=data=journal,journal_async_commit
    [paper]=data=journal,journal_async_commit
    [sha1]=data=journal,journal_async_commit
    [traced]=data=journal,journal_async_commit
    [free]=data=journal,journal_async_commit
    [lz4]=data=journal,journal_async_commit
    [lz4+delta]=data=journal,journal_async_commit
    [zstd]=data=journal,journal_async_commit
    [zstd+delta]=data=journal,journal_async_commit
    [zstd+log]=data=journal,journal_async_commit
    [all]=data=journal,journal_async_commit
    [least]=data=journal,journal_async_commit
    [log]=data=ordered
    [alone]=data=ordered
    [merging]=data=ordered
    [tables]=data=ordered
    [shadow]=data=ordered
    [strong-alone]=data=ordered
    [strong-merging]=data=ordered
    [strong]=data=ordered
    [strong-shadow]=data=ordered
)
declare -A policy=([off]="write-once=off" [on]="write-once=on,replay=on" [on-full]="write-once=on,replay=on" [paper]="write-once=paper,hash=head64"
    [sha1]="write-once=off,dedup=on,decide=sha1,sample=off"
    [lz4]="replay=on,compress=lz4" [lz4+delta]="replay=on,compress=lz4,delta=on"
    [zstd]="replay=on,compress=zstd" [zstd+delta]="replay=on,compress=zstd,delta=on" [zstd+log]="replay=on,compress=zstd,delta=log"
    [all]="replay=on,compress=zstd,delta=on,zero=on,dedup=on"
    [least]="replay=on,compress=zstd:6,delta=on,zero=on,dedup=on"
    [log]="write-once=off,dedup=on")
# How a volume is created and served, if not by default.
declare -A made=([on-full]=--preallocate) served=()
# OrderMergeDedup's configurations under weak and under strong persistence: only its order of writes, then also merging of writes that no
# answer waits for, then also held-back commits, and the shadowed tables that it is compared with.
for persistence in '' strong-; do
    both="write-once=off,dedup=on"
    policy[${persistence}alone]="$both,merging=off,anticipation=off"
    policy[${persistence}merging]="$both,anticipation=off"
    for name in tables strong shadow strong-shadow; do policy[$name]=$both; done
    for name in alone merging; do made[$persistence$name]="--layout ordered"; done
    made[${persistence}shadow]="--layout shadow"
done
made[tables]="--layout ordered" made[strong]="--layout ordered"
for name in strong strong-alone strong-merging strong-shadow; do served[$name]="--with persistence=strong"; done
# The file system, if not ext4.
declare -A file_system=([ext3]=ext3)
configurations=(journal ordered ordered-full off on on-full free paper sha1 traced)
# Packing, against plain storage and against a volume without it; CSA-FS compares itself with ext3, on its kinds of load.
[ -z "${PACKING:-}" ] || configurations=(ordered ext3 on lz4 lz4+delta zstd zstd+delta all least)
# The configurations compared on a slow disk.
[ -z "${LIMIT:-}" ] || configurations=(journal ordered off on free)
[ -z "${LIMIT:-}" ] || [ -z "${PACKING:-}" ] || configurations=(ordered ext3 on lz4 zstd zstd+delta all)
# Deduplication on each layout, against plain storage.
[ -z "${LAYOUTS:-}" ] || configurations=(ordered log alone merging tables shadow strong-alone strong-merging strong strong-shadow)
[ -z "${CONFIGURATIONS:-}" ] || read -ra configurations <<<"$CONFIGURATIONS"
# `traced` is plain storage that logs each request, to show why the file system flushes. `free` is memory, where writes and syncs cost
# nothing: no storage under this chain can exceed its rate in data=journal.
# Configurations that apply to some loads only, by their command; and those run once for their counts, which do not change between rounds.
declare -A loads_of=([ext3]="^(pgbench|build)$")
declare -A once=([paper]=yes [sha1]=yes [traced]=yes)

# Starts the server of $configuration on a fresh store; sets $loop to a block device of it.
up() {
    rm -f "$dir/store"
    case $configuration in
        journal | ordered | ext3)
            truncate -s "$volume" "$dir/store"
            start nbdkit -f -U "$dir/socket" file "$dir/store"
            ;;
        ordered-full)
            # Zeros remain writes: otherwise mkfs would return the space, or leave it as unwritten extents.
            head -c "$volume" /dev/zero >"$dir/store"
            sync "$dir/store"
            start nbdkit -f -U "$dir/socket" --filter=nozero file "$dir/store"
            ;;
        free) start nbdkit -f -U "$dir/socket" memory "$volume" ;;
        traced)
            truncate -s "$volume" "$dir/store"
            start nbdkit -f -U "$dir/socket" --filter=log file "$dir/store" "logfile=$dir/trace"
            ;;
        *)
            # shellcheck disable=SC2086
            "$VELLUM" create "$dir/store" --size "$volume" ${made[$configuration]:-} >/dev/null
            # Zeros and duplicates are stored like everything else: only write-once may save writes here.
            # shellcheck disable=SC2086
            start "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" --research "compress=off,delta=off,zero=off,dedup=off,${policy[$configuration]}" ${served[$configuration]:-}
            ;;
    esac
    : >"$dir/chain.img"
    nbdfuse "$dir/chain.img" "$(socket_uri)" &
    pids+=("$!")
    local tries
    for ((tries = 0; tries < 500; tries++)); do
        [ "$(stat -c %s "$dir/chain.img")" -eq 0 ] || break
        sleep 0.02
    done
    loop=$(losetup --find --show --direct-io=on "$dir/chain.img")
    loops+=("$loop")
}

down() {
    losetup -d "$loop"
    loops=()
    # The kernel releases the loop device's file a moment later.
    local tries
    for ((tries = 0; tries < 500; tries++)); do
        ! fusermount3 -u "$dir/chain.img" 2>/dev/null || break
        sleep 0.02
    done
    wait "${pids[-1]}" || true
    unset 'pids[-1]'
    stop
}

mounted() {
    mount -o "$options" "$loop" "$dir/mnt"
    mounts+=("$dir/mnt")
}

unmounted() {
    umount "$dir/mnt"
    mounts=()
}

# The number of the journal's next commit, while it is not mounted.
commits() { printf '%d' "$(dumpe2fs -h "$loop" 2>/dev/null | awk '/^Journal sequence/ { print $3 }')"; }

# Waits until tables have written what they hold back for half a minute because no answer waits for it, so that windows do not mix.
settled() {
    [[ ${made[$configuration]:-} == *--layout* ]] || return 0
    "$VELLUM" set "$dir/store" --research merging=off >/dev/null
    sleep 1
    [[ ${policy[$configuration]} == *merging=off* ]] || "$VELLUM" set "$dir/store" --research merging=on >/dev/null
}

# A line of JSON: what the file system has sent so far, and what went to the medium.
counters() {
    local sent
    # Fields 7 and 16 of the block layer's counters: sectors written, and flushes. The processors' times are the total, the idle time, and
    # the server's time.
    sent=$(awk -v server="$(cpu_ticks "$server")" '
        FNR == NR { sectors = $7; flushes = $16; next }
        /^cpu / { for (i = 2; i <= 9; i++) all += $i; idle = $5 + $6 }
        END { printf "{\"host_blocks\": %d, \"flushes\": %d, \"ticks\": %d, \"idle_ticks\": %d, \"server_ticks\": %d}", sectors / 8, flushes, all, idle, server }
        ' "/sys/block/$(basename "$loop")/stat" /proc/stat)
    case $configuration in
        journal | ordered | ordered-full | ext3 | traced | free)
            # nbdkit's plugins: each write is a write to the file, each flush an fdatasync.
            jq -c '. + { medium_bytes: (.host_blocks * 4096), syncs: .flushes }' <<<"$sent"
            ;;
        *)
            "$VELLUM" stats "$dir/store" --json | jq -c --argjson sent "$sent" '.[0].stats | $sent + {
                medium_bytes: .medium.written_bytes, syncs: (.medium.syncs + .medium.durable_writes),
                moved_bytes: .medium.moved_bytes, commit_blocks: .write_once.commits, fingerprint_seconds: (.medium.fingerprint_micros / 1e6),
                compared_in_memory: .medium.compare_kept, compared_by_reading: (.core.compare_reads - .medium.compare_kept) } + (.core | {
                journal_blocks, home_writes, remapped_blocks, collided_blocks, missing_blocks,
                medium_headers, medium_data, medium_moved, medium_summaries, medium_map, durable_chunks,
                packed_blocks, packed_bytes, packed_reads, delta_blocks, delta_bytes, base_reads, dedup_blocks, zero_blocks,
                compared_equal, compared_unequal, pledged_blocks, flushes_free, flushes_merged,
                flushes_of_homes, map_checkpoints })'
            ;;
    esac
}
