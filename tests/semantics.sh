#!/usr/bin/env bash
# What the index of contents learns of an ext4 without semantics and with all of them (semantics=on,freed=on), over workloads of
# tests/workloads: entries, blocks shared by deduplication, and blocks written. With semantics there must never be more entries.
# RUNS="program parameter..." (separated by semicolons) for others, SCALE=n in per cent; needs root.
name=semantics
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 python3
SCALE=${SCALE:-10}
RUNS=${RUNS:-"sqlite.py;varmail.py;tree.py"}
mkdir "$dir/sources"

# Runs a load; sets `figures` to entries, blocks found stored already, blocks written by class. Empty if it cannot run here.
run() { # on|off MODE PROGRAM PARAMETER...
    local semantics=$1 mode=$2 status=0 flags
    shift 2
    figures=''
    rm -f "$dir/volume"
    "$VELLUM" create "$dir/volume" --size 3G >/dev/null
    start serve "v=$dir/volume" --research "compress=off,delta=off,dedup=on,freed=$semantics,semantics=$semantics"
    mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o "data=$mode" "$loop" "$dir/mnt"
    sleep 1
    for flags in --prepare ''; do
        # shellcheck disable=SC2086 # a flag or none
        "tests/workloads/$1" $flags --sources "$dir/sources" "$dir/mnt" "$SCALE" "${@:2}" >"$dir/out" || status=$?
        [ "$status" -eq 0 ] || break
    done
    umount "$dir/mnt"
    case $status in
        0) figures=$(told '[.core | .index_entries, .dedup_blocks, .asked_data, .asked_metadata, .asked_copies, .asked_journal] | join(" ")') ;;
        77) tail -n 1 "$dir/out" ;;
        *) return "$status" ;;
    esac
    finish
}

echo "| workload | data= | index entries without semantics | with | times fewer | blocks shared without | with | written: data, metadata, copies in the journal, the journal's own |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
IFS=';' read -ra runs <<<"$RUNS"
for mode in ordered journal; do
    for program in "${runs[@]}"; do
        read -ra words <<<"$program"
        # A busy machine may begin to follow the file system late: once, not each time.
        for ((try = 0; try < 3; try++)); do
            run off "$mode" "${words[@]}"
            [ -n "$figures" ] || continue 2
            read -r without shared _ <<<"$figures"
            run on "$mode" "${words[@]}"
            read -r with shared_with data metadata copies own <<<"$figures"
            [ "$with" -gt "$without" ] || break
        done
        printf '| %s | %s | %s | %s | %s | %s | %s | %s, %s, %s, %s |\n' "$program" "$mode" "$without" "$with" \
            "$(jq -n "$without / $with * 100 | round / 100")" "$shared" "$shared_with" "$data" "$metadata" "$copies" "$own"
        [ "$with" -le "$without" ]
    done
done
echo "semantics: passed"
