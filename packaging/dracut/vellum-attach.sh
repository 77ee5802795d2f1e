#!/bin/sh
# In the initramfs, each time that the devices have settled: attaches each volume that the root file system may be on, when its drive is there.
[ -e /etc/vellum/initramfs ] || return 0
mkdir -p /run/vellum-tried
while read -r name device; do
    tried=/run/vellum-tried/$name
    [ ! -e "$tried" ] || continue
    volume="the volume $name ($device), which the root file system is on,"
    if [ ! -e "$device" ]; then
        # A drive may take its time: after ten tries, of half a second each, it is told, once, which one is waited for.
        missing=0
        [ ! -e "$tried.missing" ] || read -r missing <"$tried.missing"
        missing=$((missing + 1))
        echo "$missing" >"$tried.missing"
        [ "$missing" -ne 10 ] ||
            warn "vellum: $volume is missing. Is its drive connected? Connect it, then boot again, or give \`vellum boot start $name\`"
        continue
    fi
    # Once: what is wrong with a volume does not mend itself, and the shell that follows has `vellum check` and `vellum rescue`.
    : >"$tried"
    if vellum boot start "$name" >"$tried" 2>"$tried.said" </dev/null; then
        cat "$tried.said" >&2
    else
        warn "vellum: $volume is not attached. $(cat "$tried.said")"
        warn "\`vellum check $device\` tells more, \`vellum boot start $name\` tries again, and \`vellum rescue\` copies what is left of a damaged volume"
    fi
done </etc/vellum/initramfs
