#!/usr/bin/env bash
# How long an fsync takes, compared with another version: `BEFORE=PROGRAM benches/fsyncs.sh`.
#
# Two volumes are attached at once, one by each program, with the ext4 that `attach --mkfs --mount` makes (data=journal,
# journal_async_commit). A load does STEPS syncs on one and then on the other, ROUNDS times; the result is the median of the pairs'
# quotients, so that a slow moment of the machine hits both. It also prints the medium's syncs for each sync of the load, which noise does
# not affect. PROPERTIES: what both have; a version without properties takes them as a policy.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
BEFORE=$(realpath "${BEFORE:?a vellum of before}")
ROUNDS=${ROUNDS:-15}
STEPS=${STEPS:-40}
PROPERTIES=${PROPERTIES:-compress=zstd,delta=on,replay=on}

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-fsyncs.XXXXXX")
cleanup() {
    set +e
    "$VELLUM" detach "$dir/now.vol" >/dev/null 2>&1
    "$BEFORE" detach "$dir/before.vol" >/dev/null 2>&1
    rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# attach NAME PROGRAM
attach() {
    local flag=--with
    "$2" attach --help | grep -q -e --with || flag=--policy
    mkdir "$dir/$1"
    "$2" create "$dir/$1.vol" --size 4G >/dev/null
    "$2" attach "$dir/$1.vol" "$flag" "$PROPERTIES" --mkfs --mount "$dir/$1" >/dev/null </dev/null
}
attach before "$BEFORE"
attach now "$VELLUM"
cat >"$dir/load.py" <<'EOF'
import json, os, random, statistics, subprocess, sys, time

before, now, folder, rounds, steps = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
programs = {"before": before, "now": now}
words = [bytes(random.Random(n).choices(b"abcdefgh ", k=7)) for n in range(500)]


def text(length):
    return b" ".join(random.choices(words, k=length // 8 + 1))[:length]


def syncs(name):
    told = subprocess.run([programs[name], "stats", f"{folder}/{name}.vol", "--json"], capture_output=True, check=True)
    told = json.loads(told.stdout)
    medium = (told[0] if isinstance(told, list) else told)["stats"]["medium"]
    return medium["syncs"] + medium["durable_writes"]


# Each writes and syncs once.
def overwrite(file, step, sync=os.fsync):
    os.pwrite(file, text(4096), step % 64 * 4096)
    sync(file)


def append(file, step):
    os.lseek(file, 0, os.SEEK_END)
    os.write(file, text(600))
    os.fsync(file)


def log(file, step):
    overwrite(file, step, os.fdatasync)


def large(file, step):
    os.pwrite(file, text(2 << 20), step % 8 * (2 << 20))
    os.fsync(file)


print("| an fsync of | before, ms | now, ms | now to before | syncs and durable writes for each, before | now |")
print("| --- | ---: | ---: | ---: | ---: | ---: |")
for load, count in (overwrite, steps), (append, steps), (log, steps), (large, max(2, steps // 8)):
    files = {name: os.open(f"{folder}/{name}/{load.__name__}", os.O_CREAT | os.O_RDWR) for name in programs}
    for file in files.values():
        os.write(file, text(16 << 20 if load is large else 64 * 4096))
        os.fsync(file)
    times = {name: [] for name in programs}
    began = {name: syncs(name) for name in programs}
    for turn in range(rounds):
        for name in ("before", "now") if turn % 2 else ("now", "before"):
            took = []
            for step in range(count):
                start = time.perf_counter()
                load(files[name], step)
                took.append(time.perf_counter() - start)
            times[name].append(statistics.median(took))
    ratio = statistics.median(n / b for n, b in zip(times["now"], times["before"]))
    each = {name: (syncs(name) - began[name]) / (rounds * count) for name in programs}
    ms = {name: statistics.median(times[name]) * 1000 for name in programs}
    print(f"| {load.__name__} | {ms['before']:.2f} | {ms['now']:.2f} | {ratio:.3f} | {each['before']:.2f} | {each['now']:.2f} |", flush=True)
EOF
python3 "$dir/load.py" "$BEFORE" "$VELLUM" "$dir" "$ROUNDS" "$STEPS"
