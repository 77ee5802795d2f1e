#!/usr/bin/env bash
# What of an ext4 the index of contents learns without semantics and with all of them (semantics=on,freed=on), over workloads of
# tests/workloads: entries, what deduplication shares, and what was written. There must never be more entries with them.
# RUNS="program parameter..." (with semicolons between) for others, SCALE=n in per cent; needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo "SKIP: semantics: it needs root, /dev/fuse and /dev/loop-control"
    exit 0
fi
for tool in mkfs.ext4 losetup fusermount3 jq python3; do
    command -v "$tool" >/dev/null || { echo "SKIP: semantics: it needs $tool"; exit 0; }
done
SCALE=${SCALE:-10}
RUNS=${RUNS:-"sqlite.py;varmail.py;tree.py"}
VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
[ -x "$VELLUM" ] || cargo build --release --locked -p vellum-cli
VELLUM=$(realpath "$VELLUM")
workloads=$(realpath tests/workloads)

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-semantics.XXXXXX")
mkdir "$dir/fuse" "$dir/mnt" "$dir/sources"
server='' loop=''
let_go() {
    ! mountpoint -q "$dir/mnt" || umount "$dir/mnt" || umount -l "$dir/mnt" || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
    fusermount3 -u "$dir/fuse" 2>/dev/null || fusermount3 -uz "$dir/fuse" 2>/dev/null || true
    loop=''
}
cleanup() {
    set +e
    let_go
    [ -z "$server" ] || kill "$server" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

core() { "$VELLUM" stats "$dir/volume" --json | jq "[.[0].stats.core | $1] | map(tostring) | join(\" \")" -r; }

# Runs it; prints entries, blocks found stored already, blocks written by class.
run() { # on|off MODE PROGRAM PARAMETER...
    local semantics=$1 mode=$2 tries
    shift 2
    rm -f "$dir/volume"
    "$VELLUM" create "$dir/volume" --size 3G >/dev/null
    "$VELLUM" serve "v=$dir/volume" --fuse "$dir/fuse" --policy "dedup=on,freed=$semantics,semantics=$semantics" >"$dir/log" 2>&1 &
    server=$!
    for ((tries = 0; tries < 3000; tries++)); do [ ! -e "$dir/fuse/v" ] || break; sleep 0.02; done
    loop=$(losetup --find --show --direct-io=on "$dir/fuse/v")
    mkfs.ext4 -q -F -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o "data=$mode" "$loop" "$dir/mnt"
    sleep 1
    "$workloads/$1" --prepare --sources "$dir/sources" "$dir/mnt" "$SCALE" "${@:2}" >"$dir/out" || return 1
    "$workloads/$1" --sources "$dir/sources" "$dir/mnt" "$SCALE" "${@:2}" >"$dir/out" || return 1
    umount "$dir/mnt"
    core '.index_entries, .dedup_blocks, .asked_data, .asked_metadata, .asked_copies, .asked_journal'
    let_go
    kill "$server"
    wait "$server"
    server=''
}

echo "| workload | data= | index entries without semantics | with | times fewer | blocks shared without | with | written: data, metadata, copies in the journal, the journal's own |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
IFS=';' read -ra runs <<<"$RUNS"
for mode in ordered journal; do
    for program in "${runs[@]}"; do
        read -ra words <<<"$program"
        if ! told=$(run off "$mode" "${words[@]}"); then
            tail -n 1 "$dir/out"
            let_go
            kill "$server" && wait "$server" || true
            server=''
            continue
        fi
        read -r without shared _ <<<"$told"
        read -r with shared_with data metadata copies own <<<"$(run on "$mode" "${words[@]}")"
        printf '| %s | %s | %s | %s | %s | %s | %s | %s, %s, %s, %s |\n' "$program" "$mode" "$without" "$with" \
            "$(jq -n "$without / $with * 100 | round / 100")" "$shared" "$shared_with" "$data" "$metadata" "$copies" "$own"
        [ "$with" -le "$without" ]
    done
done
echo "semantics: passed"
