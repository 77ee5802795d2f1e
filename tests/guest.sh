#!/usr/bin/env bash
# Attachments over what this kernel may not have: ublk and the NBD client of Debian's kernel, in a guest.
# PARTS="ublk" for one of them. A minute each without KVM.
set -euo pipefail
cd "$(dirname "$0")/.."
export VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
[ -x "$VELLUM" ] || cargo build --release --locked -p vellum-cli

scripts/setup.sh guest || { echo "guest: SKIP: QEMU cannot be had here"; exit 0; }
for part in ${PARTS:-ublk nbd ways}; do
    script="attach.sh $part"
    [ "$part" != ways ] || script=ways.sh
    code=0
    # shellcheck disable=SC2086 # a script and its argument
    PATIENCE=600 tests/guest/run.sh tests/guest/$script || code=$?
    [ "$code" -ne 77 ] || { echo "guest: SKIP: no guest can be made here"; exit 0; }
    [ "$code" -eq 0 ] || { echo "guest: $part FAILED ($code)"; exit 1; }
done
echo "guest: passed"
