#!/usr/bin/env bash
# A real ext4 on a volume served with --record; then the trace in the lab, in place, with the same policies on a volume of the same size.
# The device's counters are compared with the lab's: equal to the block, or explained to the block.
#
# The lab answers in order, 32 at a time. At the trace's own times no request waits for an answer: where the simulated drive is slower than
# the real one was, the journal's space is overwritten before its contents are home, which the file system never did.
#
# Explained: (1) blocks zeroed by request are zero blocks, and the host did not write them; (2) the journal's blocks that mkfs wrote
# before the volume had seen the file system; (3) every written block was stored, remapped, absorbed, found stored already, or zero, in
# both. Which of these it was depends on when a chunk was sealed, and so on timing: that is shown, and bounded.
#
# Also: a trace whose disk is full ends with an error and the volume continues; `vellum record` in front of a plain file.
# Needs root. MODES="data=journal" for one of them.

# In its own mount namespace: one created meanwhile would keep our mount, and then the file system writes after it was counted.
if [ "${1:-}" != --own ] && unshare -m true 2>/dev/null; then exec unshare -m "$0" --own; fi
name=lab_record
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 e2fsck python3
mkdir "$dir/small"
others+=("$dir/small")

work() { # MOUNT-OPTIONS
    mkfs.ext4 -q -F -b 4096 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o "noatime,$1" "$loop" "$dir/mnt"
    tests/workloads/writes.py --prepare "$dir/mnt" 50 random 10 >/dev/null
    tests/workloads/writes.py "$dir/mnt" 50 random 10 >/dev/null
    # Duplicate files.
    for ((n = 0; n < 4; n++)); do
        cp "$dir/mnt/file" "$dir/mnt/copy$n"
        sync -f "$dir/mnt"
    done
    rm "$dir/mnt/copy1"
    umount "$dir/mnt"
}

# Recording never delays a client, so on a busy machine it may leave something out, and counts that. Such a trace proves nothing.
recorded() { # MODE POLICY
    whole=
    for ((try = 0; try < 4; try++)); do
        rm -f "$dir/trace" "$dir/volume"
        "$VELLUM" create "$dir/volume" --size 1G --medium-size 1200M >/dev/null
        start serve "v=$dir/volume" --record "$dir/trace" --with "compress=off,delta=off,$2"
        work "$1"
        "$VELLUM" stats "$dir/volume" --json >"$dir/stats"
        clean "$loop"
        finish
        whole=$(jq '.[0].recording | .lost + .without_contents == 0' "$dir/stats")
        [ "$whole" != true ] || return 0
        echo "$1, $2: not all was recorded"
    done
    echo "SKIP: lab_record: $1, $2: this machine is too busy to record all"
}

# What depends on timing may differ once on a busy machine, not each time.
compare() { # MODE POLICY-OF-THE-DEVICE POLICY-OF-THE-LAB
    local tries
    for ((tries = 0; tries < 3; tries++)); do
        # Not in a condition, where a command that fails would not end the test.
        recorded "$1" "$2"
        [ "$whole" = true ] || return 0
        compare_once "$@"
        if ! grep -q '^FAILED' "$dir/rows"; then return 0; fi
        if grep '^FAILED' "$dir/rows" | grep -qv '^FAILED: not near'; then break; fi
    done
    failed=1
}

compare_once() { # MODE POLICY-OF-THE-DEVICE POLICY-OF-THE-LAB
    "$VELLUM" lab run "$dir/trace" --depth 32 --in-place --device fast-ssd --capacity 1200M --op 17.1 --policy "$3" \
        --precondition none --json >"$dir/lab"
    jq -nr --arg head "$1, $2" --slurpfile stats "$dir/stats" --slurpfile lab "$dir/lab" '
        $stats[0][0].recording as $r | $stats[0][0].stats.core as $d
        | ($lab[0][0].engine | map({(.[0]): .[1]}) | add) as $l
        | ($stats[0][0].stats.clients.write_zeroes.bytes / 4096) as $zeroed
        | def row(what; a; b): "| \(what) | \(a) | \(b) |";
        def stored(s): s.medium_data + s.remapped_blocks + s.absorbed_blocks + s.dedup_blocks;
        def near(a; b; percent; blocks): (a - b | fabs) <= ([blocks, percent / 100 * ([a, b] | max)] | max);
        "\($head): \($r.requests) requests, \($r.bytes) bytes of trace, \($zeroed) blocks zeroed by request",
        row("blocks"; "device"; "lab"), row("---"; "---"; "---"),
        row("host wrote"; $d.host_blocks_written; $l.host_blocks_written),
        row("zero, without those by request"; $d.zero_blocks - $zeroed; $l.zero_blocks - $zeroed),
        row("discarded"; $d.discarded_blocks; $l.discarded_blocks),
        row("into the journal"; $d.journal_blocks; $l.journal_blocks),
        row("home"; $d.home_writes; $l.home_writes),
        row("remapped"; $d.remapped_blocks; $l.remapped_blocks),
        row("found stored"; $d.dedup_blocks; $l.dedup_blocks),
        row("absorbed"; $d.absorbed_blocks; $l.absorbed_blocks),
        row("data on the medium"; $d.medium_data; $l.medium_data),
        row("headers"; $d.medium_headers; $l.medium_headers),
        row("summaries"; $d.medium_summaries + $d.medium_restamped; $l.medium_summaries + $l.medium_restamped),
        (if $d.host_blocks_written != $l.host_blocks_written then "FAILED: host blocks" else empty end),
        (if $d.zero_blocks != $l.zero_blocks then "FAILED: zero blocks" else empty end),
        (if $d.discarded_blocks != $l.discarded_blocks then "FAILED: discarded blocks" else empty end),
        (if stored($d) + $d.zero_blocks - $zeroed != $d.host_blocks_written then "FAILED: the device lost count" else empty end),
        (if stored($l) + $l.zero_blocks - $zeroed != $l.host_blocks_written then "FAILED: the lab lost count" else empty end),
        (if near($d.journal_blocks; $l.journal_blocks; 0; 16) then empty else "FAILED: not near: journal blocks" end),
        (if near($d.remapped_blocks; $l.remapped_blocks; 1; 16) then empty else "FAILED: not near: remaps" end),
        (if near($d.dedup_blocks; $l.dedup_blocks; 1; 16) then empty else "FAILED: not near: found stored" end),
        (if near($d.medium_data; $l.medium_data; 1; 16) then empty else "FAILED: not near: data on the medium" end)' | tee "$dir/rows"
}

failed=0
for mode in ${MODES:-data=journal data=ordered}; do
    compare "$mode" write-once=on vellum:write-once
    compare "$mode" write-once=on,dedup=on vellum:write-once,dedup
done

# A full disk: the recording ends, the volume continues.
mount -t tmpfs -o size=17m tmpfs "$dir/small"
rm -f "$dir/volume"
"$VELLUM" create "$dir/volume" --size 1G >/dev/null
start serve "v=$dir/volume" --record "$dir/small/trace"
dd if=/dev/urandom of="$dir/small/fill" bs=1M count=1 2>/dev/null
work data=ordered
clean "$loop"
# It checks its disk once a second.
for ((n = 0; ; n++)); do
    ! "$VELLUM" stats "$dir/volume" --json | jq -e '.[0].recording.ended' >/dev/null || break
    ((n < 100)) || { echo "FAILED: the recording did not end"; failed=1; break; }
    sleep 0.1
done
finish
grep -q 'recording has ended' "$dir/log" || { echo "FAILED: nobody was told that the recording ended"; failed=1; }
sound
"$VELLUM" lab run "$dir/small/trace" --policy base --precondition none 2>/dev/null | grep 'breaks off' || { echo "FAILED: a trace that breaks off is not told"; failed=1; }

# In front of a plain file.
truncate -s 256M "$dir/plain"
start record "v=$dir/plain" --output "$dir/before"
work data=ordered
finish
clean "$dir/plain" || { echo "FAILED: the file is not what was written"; failed=1; }
"$VELLUM" lab compare "$dir/before" --policy base --policy vellum:write-once --precondition none >"$dir/table"
head -n 6 "$dir/table"
exit "$failed"
