#!/bin/sh
# In the initramfs, each time that the devices have settled: attaches each volume that the root file system may be on, when its drive is there.
[ -e /etc/vellum/initramfs ] || return 0
mkdir -p /run/vellum-tried
while read -r name device; do
    if [ ! -e "$device" ] || [ -e "/run/vellum-tried/$name" ]; then continue; fi
    # Once: what is wrong with a volume does not mend itself, and the shell that follows has `vellum check` and `vellum rescue`.
    : >"/run/vellum-tried/$name"
    vellum boot start "$name" >"/run/vellum-tried/$name" </dev/null ||
        warn "vellum: $device is not attached, see above; \`vellum boot start $name\` tries again"
done </etc/vellum/initramfs
