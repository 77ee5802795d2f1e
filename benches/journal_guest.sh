#!/usr/bin/env bash
# `make bench-journal-guest`: what bench-journal counts, in a guest of Debian's kernel, whose own block drivers (ublk, nbd) attach the
# volume: blocks that were remapped, and bytes written to the guest's disk, by the disk's own counters. Rewrites
# docs/benchmarks/journal-guest.md. No KVM is needed, and so no rates are reported: the counts do not depend on speed.
#
# QUICK=1 is for testing the script: small, and it writes no document. ONLY=REGEX selects workloads, CONFIGURATIONS="a b" configurations;
# neither writes one.
set -euo pipefail
cd "$(dirname "$0")/.."

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
export VELLUM
scale=${SCALE:-20}
[ -z "${QUICK:-}" ] || scale=5
workloads=(
    'sequential, fsync each 1=writes sequential 1'
    'sequential, fsync each 10=writes sequential 10'
    'sequential, fsync each 100=writes sequential 100'
    'sequential, fsync each 1000=writes sequential 1000'
    'random, fsync each 1=writes random 1 ticks'
    'random, fsync each 10=writes random 10 ticks'
    'random, fsync each 100=writes random 100'
    'random, fsync each 1000=writes random 1000'
    'copy of an image=image'
    'copy of a source tree=tree'
    'SQLite=sqlite'
    'varmail=varmail'
    'fileserver=fileserver'
)
configurations=${CONFIGURATIONS:-journal ordered off-ublk on-ublk on-nbd}

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-journal-guest.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
results=$dir/results
touch "$results"

# The workloads, and the parts of Python that they import.
python=$(python3 -c 'import sys; print(sys.executable)')
files=$dir/files
mkdir -p "$files/workloads"
cp tests/workloads/*.py "$files/workloads/"
python3 -c 'import sys; print(sys.prefix)' >"$files/workloads/prefix"
mapfile -t modules < <(python3 -c '
import argparse, encodings.ascii, encodings.idna, functools, os, random, shutil, signal, sqlite3, subprocess, sys, tempfile, threading, time
print("\n".join(sorted({file for module in sys.modules.values() if (file := getattr(module, "__file__", None))})))
')
cp --parents "${modules[@]}" "$files"
tests/guest/libraries.sh "$files" "${modules[@]}"

for entry in "${workloads[@]}"; do
    name=${entry%%=*} words=${entry#*=}
    [[ $name =~ ${ONLY:-.} ]] || continue
    for configuration in $configurations; do
        code=0
        # shellcheck disable=SC2086 # words
        MEMORY=1536 DISK=1G PATIENCE=2400 FILES=$files TOOLS="$python cp" tests/guest/run.sh benches/journal_guest_run.sh \
            "$configuration" "$scale" $words >"$dir/out" 2>&1 || code=$?
        line=$(sed -n 's/^result //p' "$dir/out")
        if [ "$code" -ne 0 ] || [ -z "$line" ]; then
            cat "$dir/out" >&2
            [ "$code" -ne 77 ] || exit 77
            echo "bench-journal-guest: $configuration, $name: failed ($code)" >&2
            exit 1
        fi
        printf '%s\t%s\t%s\n' "$name" "$configuration" "${line// /$'\t'}" | tee -a "$results"
    done
done

table() {
    cat <<EOF
# Write-once journaling over a kernel's own block drivers

\`make bench-journal-guest\` on $(date +%F), commit $(git rev-parse --short HEAD). In a guest of Debian's kernel $(strings target/guest/vmlinuz 2>/dev/null | sed -n 's/^\(6\.[^ ]*\) .*/\1/p' | head -1)
(QEMU without KVM) a volume on the guest's disk, attached by ublk and by nbd.ko, and the same disk without a volume. ext4 with blocks of 4 KiB and a journal of 64 MiB; workloads of
tests/workloads at $scale% of their usual size; from the mount to the end of the unmount. Written: sectors by the disk's own counters in the guest's kernel, so all that Vellum writes of its own is in them.

- **plain journal**, **plain ordered**: the disk itself, \`data=journal\` and \`data=ordered\`
- **off**: a volume without write-once, by ublk; **ublk**, **nbd**: with it and \`replay=on\`, as \`vellum attach --mount\` has it. No other policy reduces writes.

EOF
    awk -F'\t' -f benches/journal_guest.awk "$results"
}
if [ -n "${QUICK:-}${ONLY:-}${CONFIGURATIONS:-}" ]; then
    table
else
    table >docs/benchmarks/journal-guest.md
fi
