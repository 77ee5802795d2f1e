#!/usr/bin/env bash
# How long a client of ublk waits for a write with the defaults and with nothing on, in a guest: `make bench-answers-guest`. QEMU emulates the
# processor, so only the quotients count. BEFORE=PROGRAM: another version of vellum too.
set -euo pipefail
cd "$(dirname "$0")/.."

VELLUM=${VELLUM:-target/release/vellum}
for program in ${BEFORE:-} "$VELLUM"; do
    echo "$program:"
    VELLUM=$program CPUS=2 DISK=2G MEMORY=1500 TOOLS=fio PATIENCE=300 tests/guest/run.sh benches/answers_guest_run.sh
done
