#!/bin/sh
# Runs in the guest: async_commit.sh LIVES SEED LAYOUT [MIB|- [CUT|-]]. The test of commit blocks, over ublk, with a queue for each processor.
set -e
modprobe ublk_drv
mkdir -p /var/tmp
vellum create /tmp/v --size 64M >/dev/null
vellum attach /tmp/v --via ublk >/tmp/attached
device=$(cut -d' ' -f1 /tmp/attached)
queues=$(find "/sys/block/${device#/dev/}/mq" -mindepth 1 -maxdepth 1 | wc -l)
vellum detach /tmp/v >/dev/null
echo "ublk: $queues queues"
[ "$queues" -eq 4 ] || { echo "FAIL: not four"; exit 1; }
[ "${4:--}" = - ] || export MIB="$4"
[ "${5:--}" = - ] || export CUT="$5"
echo 1 >/tmp/code
{
    WAY=ublk LIVES=$1 SEED=$2 LAYOUT=$3 RUST_BACKTRACE=0 async_commit --nocapture --test-threads=1 \
        a_commit_block_is_not_there_without_what_it_commits 2>&1 && echo 0 >/tmp/code
} | sed -e 's/^test .* \.\.\. //' -e '/^$\|^running\|^test /d'
code=$(cat /tmp/code)
[ "$code" -eq 0 ] || dmesg | tail -30
exit "$code"
