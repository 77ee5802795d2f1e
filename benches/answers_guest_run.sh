#!/bin/sh
# Runs in the guest. Writes one block after the other, of which half compresses, to a volume over ublk.
set -e
wait_for() { # PROPERTIES DEPTH SIZE: microseconds for each write
    vellum create --force /dev/vda --size 1500M >/dev/null
    vellum attach /dev/vda --via ublk ${1:+--with "$1"} >/tmp/attached
    fio --name=writes --filename="$(cut -d' ' -f1 /tmp/attached)" --direct=1 --rw=randwrite --bs="$3" --iodepth="$2" \
        --ioengine=libaio --size=256m --runtime=4 --time_based --buffer_compress_percentage=50 --refill_buffers --minimal |
        awk -F';' '{ printf "%d", 1000000 / $49 }'
    vellum detach /dev/vda >/dev/null
}
for case in '1 4k' '1 64k' '32 4k'; do
    # shellcheck disable=SC2086 # two words
    on=$(wait_for '' $case) off=$(wait_for compress=off,delta=off,write-once=off,replay=off $case)
    echo "depth and size $case: $on us with the defaults, $off us with nothing on, $(awk "BEGIN { printf \"%.2f\", $on / $off }")"
done
