#!/usr/bin/env bash
# Compares the lab's model of a journaling host with a real ext4 of this kernel: blocks written to the journal, blocks written home, and
# flushes, of tests/workloads/writes.py on a volume (FUSE and a loop device; the volume's own counters) and of the same load in `vellum lab
# run`. Prints both; fails if one is off by more than 10% (20% with an fsync after each appending write, where ext4 with delayed allocation
# changes one block more). Each fsync's writes begin in a new tick of the kernel's clock: two fsyncs in one tick leave the inode unchanged,
# and in data=ordered there is nothing to commit then, which happens often on a fast machine.
# Needs root. WRITES="random 10" for one load.
name=lab_journal
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 python3

"$VELLUM" create "$dir/volume" --size 2G >/dev/null
start serve "v=$dir/volume"

counters() {
    told '.core | [.journal_blocks, .home_writes, .flushes] | tostring'
}

# What the volume received from mount to unmount, and how many writes there were.
real() { # MOUNT-OPTIONS ORDER WINDOW
    local before after ran
    mkfs.ext4 -q -F -b 4096 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o "noatime,$1" "$loop" "$dir/mnt"
    tests/workloads/writes.py --prepare "$dir/mnt" 100 "$2" "$3" >/dev/null
    umount "$dir/mnt"
    mount -o "noatime,$1" "$loop" "$dir/mnt"
    before=$(counters)
    ran=$(tests/workloads/writes.py "$dir/mnt" 100 "$2" "$3" ticks)
    umount "$dir/mnt"
    after=$(counters)
    jq -nc --argjson a "$before" --argjson b "$after" --arg ran "$ran" \
        '[range(3) as $i | $b[$i] - $a[$i]] + [$ran | split(" ")[0] | tonumber]'
}

model() { # MODE ASYNC ORDER WINDOW WRITES
    local load=uniform options=()
    [ "$3" = random ] || { load=sequential; options=(--growing ext4); }
    [ -z "$2" ] || options+=(--async-commit)
    "$VELLUM" lab run --workload "$load" --requests $(($5 + $5 / $4)) --flush-every "$4" --journal "$1" --journal-size 64M \
        "${options[@]}" --policy vellum:zero=off,write-once --device fast-ssd --capacity 2G --op 12 --precondition none --depth 1 --json |
        jq -c '.[0] | (.engine | map({(.[0]): .[1]}) | add) as $e
            | [$e.journal_blocks, $e.home_writes, .flushes.count + .durable_writes]'
}

echo "| mode | load | writes an fsync | | journal | home | flushes |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
failed=0
loads=("sequential 1" "sequential 10" "sequential 100" "random 1" "random 10" "random 100")
[ -z "${WRITES:-}" ] || loads=("$WRITES")
for mode in data=journal data=journal,journal_async_commit data=ordered data=writeback; do
    for load in "${loads[@]}"; do
        read -r order window <<<"$load"
        # Writeback equals ordered here, because each fsync precedes its commit: one row of each order shows it.
        [ "$mode" != data=writeback ] || [ "$window" = 100 ] || continue
        case $mode in data=ordered | data=writeback) kind=${mode#data=} async='' ;; *async*) kind=data async=1 ;; *) kind=data async='' ;; esac
        allowed=10
        [ "$load" != "sequential 1" ] || allowed=20
        # On a busy machine the kernel's own commits and writes after some seconds come between the fsyncs.
        for ((try = 0; try < 3; try++)); do
            seen=$(real "$mode" "$order" "$window")
            told=$(model "$kind" "$async" "$order" "$window" "$(jq '.[3]' <<<"$seen")")
            jq -nr --argjson real "$seen" --argjson model "$told" --argjson allowed "$allowed" --arg head "| $mode | $order | $window |" '
                def row(what; values): "\($head) \(what) | \(values | map(tostring) | join(" | ")) |";
                [range(3) as $i | if $real[$i] == 0 then 0 else ($model[$i] / $real[$i] - 1) * 100 end] as $off
                | row("ext4"; $real[0:3]), row("model"; $model),
                  row("off"; $off | map("\(. * 10 | round / 10)%")),
                  (if ($off | map(fabs) | max) > $allowed then "FAILED: more than \($allowed)%" else empty end)' >"$dir/rows"
            grep -q '^FAILED' "$dir/rows" || break
        done
        cat "$dir/rows"
        ! grep -q '^FAILED' "$dir/rows" || failed=1
    done
done
exit "$failed"
