#!/usr/bin/env bash
# The server of a volume that keeps little of its map in memory (0058) is killed at any moment, repeatedly. One client writes blocks one
# after the other, nearly each in another leaf of the map; after each kill the volume holds the effect of a prefix of its writes, and
# nothing that was fsynced is lost. In every second volume fio also writes until the collector works. LIVES=n kills of each volume, SEED;
# needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lib/begin.sh
LIVES=${LIVES:-4}
needs python3 fio
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-map-memory.XXXXXX")
cleanup() {
    set +e
    "$VELLUM" detach "$dir/a.vol" >/dev/null 2>&1
    rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
for beside in '' fio; do
    timeout 600 python3 tests/map_memory.py "$VELLUM" "$dir/a.vol" "$LIVES" "${SEED:-$RANDOM}" $beside </dev/null
    "$VELLUM" check "$dir/a.vol" >"$dir/check" || {
        cat "$dir/check"
        exit 1
    }
done
