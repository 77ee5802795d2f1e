#!/usr/bin/env bash
# Attachments over what this kernel may not have: the NBD client and ublk of Debian's kernel, in a guest.
# WAYS="nbd" for one of them. A minute or two each without KVM.
set -euo pipefail
cd "$(dirname "$0")/.."
export VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
[ -x "$VELLUM" ] || cargo build --release --locked -p vellum-cli

scripts/setup.sh guest || { echo "guest: SKIP: QEMU cannot be had here"; exit 0; }
for way in ${WAYS:-ublk nbd}; do
    code=0
    PATIENCE=600 tests/guest/run.sh tests/guest/attach.sh "$way" || code=$?
    [ "$code" -ne 77 ] || { echo "guest: SKIP: no guest can be made here"; exit 0; }
    [ "$code" -eq 0 ] || { echo "guest: $way FAILED ($code)"; exit 1; }
done
echo "guest: passed"
