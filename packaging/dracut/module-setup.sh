#!/bin/bash
# Into the initramfs: what attaches the volume that the root file system is on, if there is an entry that says so (`vellum enable --before root`).
# shellcheck disable=SC2034,SC2154 # dracut's variables

check() {
    require_binaries vellum || return 1
    grep -qs '^before *= *"root"' /etc/vellum/volumes/*.toml
}

depends() {
    echo base
}

installkernel() {
    hostonly='' instmods ublk_drv
}

install() {
    local device
    early=$(vellum boot initramfs "$initdir") || return 1
    inst_multiple vellum modprobe
    inst_rules 61-vellum.rules
    inst_hook initqueue/settled 50 "$moddir/vellum-attach.sh"
    # The drive below, whose driver the root file system's own device does not lead to.
    if [[ ${hostonly-} ]]; then
        while read -r _ device; do
            [[ -b $device ]] && host_devs["$(readlink -f "$device")"]=''
        done <<<"$early"
    fi
    return 0
}
