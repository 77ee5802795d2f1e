#!/usr/bin/env bash
# A Prometheus scrapes a volume that is written all the time: is there a gap, and what does it cost? FOR=N seconds, an hour by default,
# every 5 s (EVERY=N). It fails if a scrape failed or is missing, or if `vellum metrics` took more than half a per cent of one processor.
#
# The results are queried from Prometheus, over its HTTP API. Needs root, for FUSE. `vellum metrics` queries every server of this user on
# this machine, so unrelated servers add to the cost.
set -euo pipefail
cd "$(dirname "$0")/.."
FOR=${FOR:-3600}
EVERY=${EVERY:-5}
# The address of that Prometheus.
LISTEN=${LISTEN:-127.0.0.1:9091}
# The limit, in per cent of one processor.
MOST=0.5
[ -n "${VELLUM:-}" ] || cargo build --quiet --release --locked -p vellum-cli
VELLUM=$(realpath "${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}")
for tool in prometheus curl jq fio fusermount3; do
    command -v "$tool" >/dev/null || { echo "SKIP: scrape: it needs $tool"; exit 0; }
done

dir=$(mktemp -d -p /var/tmp)
pids=()
end() {
    # In reverse order: the load ends before what it writes to.
    for ((n = ${#pids[@]} - 1; n >= 0; n--)); do
        kill "${pids[n]}" 2>/dev/null || true
        wait "${pids[n]}" 2>/dev/null || true
    done
    ! mountpoint -q "$dir/fuse" || umount -l "$dir/fuse"
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT TERM
fail() {
    echo "scrape: FAILED: $*"
    exit 1
}
# Waits for a line of output from a program that was just started.
ready() {
    for ((tries = 0; tries < 600; tries++)); do
        ! grep -qs "$2" "$1" || return 0
        sleep 0.05
    done
    fail "$1: $(cat "$1")"
}

mkdir "$dir/fuse"
"$VELLUM" create "$dir/v" --size 1G >/dev/null
"$VELLUM" serve "v=$dir/v" --fuse "$dir/fuse" 2>"$dir/server" >&2 &
pids+=($!)
ready "$dir/server" '^ready: '
"$VELLUM" metrics --listen 127.0.0.1:0 2>"$dir/metrics" &
metrics=$!
pids+=("$metrics")
ready "$dir/metrics" '^ready: '
scraped=$(sed -n 's,^ready: http://\([^/]*\)/.*,\1,p' "$dir/metrics")
cat >"$dir/prometheus.yml" <<YAML
global: {scrape_interval: ${EVERY}s, scrape_timeout: ${EVERY}s}
scrape_configs: [{job_name: vellum, static_configs: [{targets: ['$scraped']}]}]
YAML
prometheus --config.file "$dir/prometheus.yml" --storage.tsdb.path "$dir/series" --web.listen-address "$LISTEN" 2>"$dir/log" &
pids+=($!)
ready "$dir/log" 'Server is ready'
fio --name=load --filename="$dir/fuse/v" --rw=randrw --rwmixwrite=80 --bs=4k --size=1G --rate_iops=50 --fsync=10 --direct=1 \
    --buffer_compress_percentage=50 --refill_buffers --time_based --runtime="$((FOR + 60))" >"$dir/fio" 2>&1 &
load=$!
pids+=("$load")

# The processor time of `vellum metrics`, including threads that have ended, in ticks.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$metrics/stat"; }
now() { date +%s.%N; }
asked() { curl -fsS --get "http://$LISTEN/api/v1/query" --data-urlencode "query=$1"; }
# A target's first scrape does not happen at once.
for ((tries = 0; tries < 600; tries++)); do
    ! asked up | jq -e '.data.result[0].value[1] == "1"' >/dev/null || break
    sleep 0.1
done
started=$(now)
before=$(ticks)
sleep "$FOR"
spent=$(($(ticks) - before))
took=$(awk -v a="$started" -v b="$(now)" 'BEGIN { print b - a }')
kill -0 "$load" 2>/dev/null || fail "the load has ended: $(cat "$dir/fio")"

# Every sample of the measured time, as Prometheus stores it.
range=$(printf '%.0f' "$took")s
asked "up[$range]" >"$dir/up"
asked "scrape_duration_seconds[$range]" >"$dir/durations"
asked "vellum_client_bytes_total{volume=\"$dir/v\",operation=\"write\"}[$range]" >"$dir/written"
share=$(awk -v spent="$spent" -v tick="$(getconf CLK_TCK)" -v took="$took" 'BEGIN { printf "%.3f", 100 * spent / tick / took }')
jq -rn --slurpfile up "$dir/up" --slurpfile durations "$dir/durations" --slurpfile written "$dir/written" '
    def samples: .[0].data.result | if length == 1 then .[0].values else error("\(length) series") end;
    def steps: [.[:-1], .[1:]] | transpose;
    ($up | samples) as $up | ($durations | samples | map(.[1] | tonumber) | sort) as $durations | ($written | samples) as $written |
    "scrapes=\($up | length)",
    "failed=\($up | map(select(.[1] != "1")) | length)",
    "gap=\($up | steps | map(.[1][0] - .[0][0]) | max * 1000 | round)",
    "median=\($durations[length / 2 | floor] * 1e6 | round)",
    "longest=\($durations[-1] * 1e6 | round)",
    "told=\($written | length)",
    "stood=\($written | steps | map(select((.[1][1] | tonumber) <= (.[0][1] | tonumber))) | length)",
    "written=\(($written[-1][1] | tonumber) - ($written[0][1] | tonumber))"' >"$dir/figures"
# shellcheck source=/dev/null
. "$dir/figures"
echo "scrape: $scrapes scrapes in $took s, $failed failed, the longest time between two ${gap:?} ms"
echo "scrape: answered in ${median:?} us (median) to ${longest:?} us; $((${written:?} >> 20)) MiB written meanwhile"
echo "scrape: vellum metrics took $spent ticks, $share % of a processor"
[ "${failed:?}" -eq 0 ] || fail 'a scrape was not answered'
[ "${scrapes:?}" -ge "$((${took%.*} / EVERY - 1))" ] || fail 'scrapes are missing'
[ "$gap" -le $((EVERY * 1500)) ] || fail 'there is a gap'
[ "${told:?}" -eq "$scrapes" ] || fail "the volume is in $told of them"
[ "${stood:?}" -eq 0 ] || fail "its counter of bytes stood still $stood times"
awk -v share="$share" -v most="$MOST" 'BEGIN { exit !(share <= most) }' || fail "that is more than $MOST %"
echo 'scrape: passed'
