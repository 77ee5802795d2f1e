#!/usr/bin/env bash
# How soon a large volume answers, after it was stopped and after its server was killed (docs/decisions/0061): benches/opening.sh
#
# A volume of SIZE in a sparse file; WRITES writes of 4 KiB, nearly each in another leaf of the map, a sync each SYNC of them. Then it is
# attached three times: after it was stopped, after more writes and kill -9, and after kill -9 before it was counted. The columns: the
# time until a device is there, until a block of it has been read and until one has been written durably, each from the start; then until
# all is counted; blocks that the server has read for itself until the device was there. Needs root, fio and about 4 GiB. A row for each
# of MAP_MEMORY: with `all` the volume is counted before it is opened, as every one was until 2026-11-29.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
MAP_MEMORY=${MAP_MEMORY:-all 64M}
SIZE=${SIZE:-1T}
WRITES=${WRITES:-300000}
SYNC=${SYNC:-2000}
ALIGN=${ALIGN:-4m}
ZEROS=${ZEROS:-0}

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-opening.XXXXXX")
cleanup() {
    set +e
    "$VELLUM" detach "$dir/o.vol" >/dev/null 2>&1
    rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

now() { date +%s%N; }
since() { printf '%d ms' $((($2 - $1) / 1000000)); }
attach() {
    device=$("$VELLUM" attach "$dir/o.vol" </dev/null | cut -d' ' -f1)
    server=$("$VELLUM" list --json </dev/null | jq -r ".[] | select(.path == \"$dir/o.vol\").pid")
}
kill_server() {
    kill -9 "$server"
    while kill -0 "$server" 2>/dev/null; do sleep 0.01; done
    "$VELLUM" detach "$dir/o.vol" >/dev/null 2>&1 || true
}
stat_of() { "$VELLUM" stats "$dir/o.vol" --json </dev/null | jq -r "[.. | objects | .$1? // empty] | first // 0"; }
load() {
    fio --name=load --filename="$device" --rw=randwrite --bs=4k --blockalign="$ALIGN" --norandommap --randrepeat=0 --randseed="$1" \
        --direct=1 --refill_buffers --buffer_compress_percentage="$ZEROS" --ioengine=libaio --iodepth=32 --number_ios="$2" \
        --fsync="$SYNC" >/dev/null 2>&1
}
row() { printf '%-10s %-24s %9s %9s %9s %10s %9s\n' "$@"; }
# timed WHAT: attaches, and prints a row
timed() {
    echo 3 >/proc/sys/vm/drop_caches
    local began there read written
    began=$(now)
    attach
    there=$(now)
    dd if="$device" of=/dev/null bs=4k count=1 skip=123457 iflag=direct status=none
    read=$(now)
    dd if=/dev/urandom of="$device" bs=4k count=1 seek=1234567 oflag=direct conv=fsync,notrunc status=none
    written=$(now)
    local blocks
    blocks=$("$VELLUM" stats "$dir/o.vol" --json </dev/null | jq -r '[.. | objects | .recovery? // empty | .read_blocks] | first')
    if [ "${2:-}" = now ]; then
        row "$most" "$1" "$(since "$began" "$there")" "$(since "$began" "$read")" "$(since "$began" "$written")" - "$blocks"
        return
    fi
    while [ "$(stat_of uncounted_leaves)" != 0 ]; do sleep 0.02; done
    row "$most" "$1" "$(since "$began" "$there")" "$(since "$began" "$read")" "$(since "$began" "$written")" \
        "$(since "$began" "$(now)")" "$blocks"
}

row map-memory opened device read written counted blocks
for most in $MAP_MEMORY; do
    rm -f "$dir/o.vol"
    "$VELLUM" create "$dir/o.vol" --size "$SIZE" --set "map-memory=$most" >/dev/null
    attach
    load 1 "$WRITES"
    "$VELLUM" detach "$dir/o.vol" >/dev/null
    timed 'after a stop'
    load 2 "$((WRITES / 4))"
    kill_server
    timed 'after kill -9' now
    kill_server
    timed 'after kill -9 uncounted'
    "$VELLUM" detach "$dir/o.vol" >/dev/null
    "$VELLUM" check "$dir/o.vol" >/dev/null
done
