#!/usr/bin/env bash
# How long a client waits for a write with everything on, compared with nothing on: `make bench-answers`.
#
# Two servers run at once, one on a volume with ON, the other on one with OFF. For each kind of block fio writes to one and then to the
# other, ROUNDS times, and the result is the median of the pairs' quotients, so that a slow moment of the machine hits both. Depth 1: the
# time of a write, on over off (less is better). Depth 32: writes in a second, on over off (more is better). In brackets: the server's
# processor time for each write, on over off; at depth 1 a server polls for the next request all the time.
# PIN=yes keeps fio on one core and the servers on another. If the scheduler puts both on one, the server has no time to work ahead.
# BEFORE=PROGRAM: a third server of another version, with ON, for comparison.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
ROUNDS=${ROUNDS:-5}
seconds=${SECONDS_EACH:-2}
ON=${ON:-write-once=on,compress=zstd,delta=on,dedup=on}
OFF=${OFF:-write-once=off,compress=off,delta=off,dedup=off}
KINDS=${KINDS:-fresh incompressible compressible overwritten duplicate}
DEPTHS=${DEPTHS:-1 32}

pin_client=()
pin_server=()
if [ -n "${PIN:-}" ]; then
    pin_client=(taskset -c 1)
    pin_server=(taskset -c 0)
fi

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-answers.XXXXXX")
pids=()
declare -A server
cleanup() {
    set +e
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
for tool in fio jq nbdinfo; do
    command -v "$tool" >/dev/null || { echo "answers: no $tool: run scripts/setup.sh bench" >&2; exit 1; }
done

uri() { echo "nbd+unix:///?socket=$dir/$1.socket"; }

# serve NAME PROGRAM PROPERTIES: a fresh volume. Versions without properties call them policies.
serve() {
    local flag=--with
    "$2" serve --help | grep -q -e --with || flag=--policy
    "$2" create "$dir/$1.vol" --size 4G >/dev/null
    "${pin_server[@]}" "$2" serve "v=$dir/$1.vol" "$flag" "$3" --socket "$dir/$1.socket" >"$dir/$1.log" 2>&1 &
    pids+=("$!")
    server[$1]=$!
    local tries
    for ((tries = 0; tries < 500; tries++)); do
        [ -S "$dir/$1.socket" ] && nbdinfo --size "$(uri "$1")" >/dev/null 2>&1 && return
        sleep 0.02
    done
    cat "$dir/$1.log" >&2
    exit 1
}

# fio's options for a kind of block, and where it writes them.
contents() {
    case $1 in
        fresh) echo "--size=4G --buffer_compress_percentage=50 --refill_buffers" ;;
        incompressible) echo "--size=1G --refill_buffers" ;;
        compressible) echo "--size=1G --buffer_compress_percentage=80 --refill_buffers" ;;
        overwritten) echo "--size=4M --buffer_compress_percentage=50 --refill_buffers --norandommap" ;;
        duplicate) echo "--size=1G --dedupe_percentage=95 --refill_buffers" ;;
    esac
}

# ticks NAME: the server's processor time, in hundredths of a second.
ticks() { awk '{ print $14 + $15 }' "/proc/${server[$1]}/stat"; }

# run NAME KIND DEPTH: the median time of a write in nanoseconds at depth 1, otherwise writes in a second; and the server's microseconds for
# each write.
run() {
    local field='.jobs[0].write.clat_ns.percentile["50.000000"]'
    [ "$3" = 1 ] || field='.jobs[0].write.iops | round'
    local began
    began=$(ticks "$1")
    # shellcheck disable=SC2046
    "${pin_client[@]}" fio --name=answers --ioengine=nbd --uri="$(uri "$1")" --output-format=json --rw=randwrite --bs=4k --iodepth="$3" \
        --randrepeat=0 --allrandrepeat=0 --time_based --runtime="$seconds" $(contents "$2") 2>"$dir/fio.err" >"$dir/fio.json" ||
        { cat "$dir/fio.err" "$dir/$1.log" >&2; exit 1; }
    local spent=$(($(ticks "$1") - began))
    sed -n '/^{/,$p' "$dir/fio.json" | jq -r "\"\($field) \($spent * 10000 / .jobs[0].write.total_ios)\""
}

# The median of a column.
median() { awk -v c="$1" '{ print $c }' | sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

names="off on"
serve off "$VELLUM" "$OFF"
serve on "$VELLUM" "$ON"
if [ -n "${BEFORE:-}" ]; then
    names="off before on"
    serve before "$(realpath "$BEFORE")" "$ON"
fi

echo "| depth | blocks | off | ${BEFORE:+before, on | to off | }on | to off |"
echo "| ---: | --- | ---: | ${BEFORE:+---: | ---: | }---: | ---: |"
for depth in $DEPTHS; do
    for kind in $KINDS; do
        for ((round = 0; round < ROUNDS; round++)); do
            for name in $names; do
                run "$name" "$kind" "$depth" >>"$dir/$depth.$kind.$name"
            done
        done
        row="| $depth | $kind | $(median 1 <"$dir/$depth.$kind.off") |"
        for name in ${names#off }; do
            paste "$dir/$depth.$kind.$name" "$dir/$depth.$kind.off" | awk '{ print $1 / $3, $2 / $4 }' >"$dir/quotients"
            row="$row $(median 1 <"$dir/$depth.$kind.$name") |"
            row="$row $(printf '%.2f (%.2f)' "$(median 1 <"$dir/quotients")" "$(median 2 <"$dir/quotients")") |"
        done
        echo "$row"
    done
done
