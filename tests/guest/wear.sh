#!/bin/busybox sh
# shellcheck shell=dash
# An NVMe drive reports its wear through the kernel: `vellum metrics` has the values of its SMART log.
set -eu
modprobe nvme
n=0
until [ -b /dev/nvme0n1 ]; do
    n=$((n + 1))
    [ $n -lt 100 ] || { echo "FAILED: there is no NVMe drive"; exit 1; }
    sleep 0.1
done
vellum create /dev/nvme0n1 --size 64M
vellum serve --socket /tmp/nbd /dev/nvme0n1 >/tmp/log 2>&1 &
until grep -qs ready /tmp/log; do
    kill -0 $! || { cat /tmp/log; exit 1; }
    sleep 0.1
done
vellum metrics --tbw nvme0n1=600 >/tmp/metrics
grep '^vellum_drive' /tmp/metrics
# A drive that was made a minute ago has used nothing of its life.
grep -q '^vellum_drive_life_used_ratio{drive="nvme0n1"} 0.0$' /tmp/metrics
kill $!
wait $!
echo "wear: passed"
