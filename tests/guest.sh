#!/usr/bin/env bash
# Attachments over what this kernel may lack: ublk and the NBD client of Debian's kernel, in a guest.
# PARTS="ublk ways" selects parts, `guest.sh parts` lists them, LIVES=n sets the kills of a server in the part `grow` and the failures of a
# drive in the parts `failing`, SEED=n which these are. A minute each without KVM, three those with `failing`.
set -euo pipefail
cd "$(dirname "$0")/.."
all="ublk nbd ways once-ublk once-nbd full-ublk full-nbd pulled-ublk pulled-nbd failing-ublk failing-nbd oom-fuse oom-ublk oom-nbd suspend-fuse suspend-ublk suspend-nbd wear grow"
[ "${1:-}" != parts ] || { echo "$all"; exit 0; }
export VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
[ -x "$VELLUM" ] || cargo build --release --locked -p vellum-cli

declare -A parts=(
    [ublk]="attach.sh ublk" [nbd]="attach.sh nbd" [ways]="ways.sh"
    [once-ublk]="write_once.sh ublk" [once-nbd]="write_once.sh nbd"
    [pulled-ublk]="pulled.sh ublk" [pulled-nbd]="pulled.sh nbd"
    [failing-ublk]="failing.sh ublk ${LIVES:-3} ${SEED:-$RANDOM}" [failing-nbd]="failing.sh nbd ${LIVES:-3} ${SEED:-$RANDOM}"
    [full-ublk]="full.sh ublk" [full-nbd]="full.sh nbd" [wear]="wear.sh"
    [oom-fuse]="oom.sh fuse" [oom-ublk]="oom.sh ublk" [oom-nbd]="oom.sh nbd"
    [suspend-fuse]="suspend.sh fuse" [suspend-ublk]="suspend.sh ublk" [suspend-nbd]="suspend.sh nbd"
    [grow]="grow.sh fuse ${LIVES:-2}"
)
scripts/setup.sh guest || { echo "SKIP: guest: QEMU cannot be had here"; exit 0; }
for part in ${PARTS:-$all}; do
    [ -n "${parts[$part]:-}" ] || { echo "guest: no part '$part': one of ${!parts[*]}" >&2; exit 2; }
    code=0
    disk=512M
    [ "$part" != grow ] || disk=4G
    # shellcheck disable=SC2086 # a script and its argument
    PATIENCE=${PATIENCE:-600} DISK=$disk NVME=128M TOOLS='blkid blkdiscard resize2fs dmsetup' tests/guest/run.sh tests/guest/${parts[$part]} || code=$?
    [ "$code" -ne 77 ] || { echo "SKIP: guest: none can be made here"; exit 0; }
    [ "$code" -eq 0 ] || { echo "guest: $part FAILED ($code)"; exit 1; }
done
echo "guest: passed"
