#!/usr/bin/env bash
# The measurement for docs/decisions/0008-encodings.md: what real file systems write, and in how few bytes each encoding stores it.
#
# Every workload runs on a new ext4 in data=journal on a disk that logs its requests (the chain of bench-journal: nbdkit -> nbdfuse -> loop
# -> ext4); then the example `choice` of crates/codec reads the logs.
#
# SCALE=PERCENT for the workloads' size; ONLY=REGEX selects some; LOGS=DIR keeps the logs there, and reuses those that exist.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

scale=${SCALE:-30}
bytes=$((1 << 30))

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo 'encodings: it needs root, /dev/fuse and /dev/loop-control' >&2
    exit 1
fi
for tool in nbdkit nbdinfo nbdfuse mkfs.ext4 losetup fusermount3 python3 git; do
    command -v "$tool" >/dev/null || { echo "encodings: no $tool: run scripts/setup.sh journal" >&2; exit 1; }
done
nbdkit --dump-plugin python >/dev/null 2>&1 || {
    echo 'encodings: nbdkit has no Python plugin (Debian: nbdkit-plugin-python)' >&2
    exit 1
}

workloads=(
    'sequential=writes sequential 100'
    'random=writes random 10'
    'append=writes sequential 1'
    'sqlite=sqlite'
    'pgbench=pgbench'
    'varmail=varmail'
    'tree=tree'
    'clone=clone'
    'kv=kv 128'
)

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-encodings.XXXXXX")
chmod 755 "$dir"
mkdir -m 755 "$dir/mnt" "$dir/sources"
logs=${LOGS:-$dir}
mkdir -p "$logs"
# shellcheck source=benches/servers.sh
. benches/servers.sh
trap cleanup EXIT
trap 'exit 130' INT TERM

one() { # LOG WORKLOAD PARAMETER...
    local log=$1 program=$2 loop tries status=0
    shift 2
    rm -f "$dir/store"
    start nbdkit -f -U "$dir/socket" python benches/encodings_record.py "store=$dir/store" "size=$bytes" "log=$log.part"
    : >"$dir/chain.img"
    nbdfuse "$dir/chain.img" "$(socket_uri)" &
    pids+=("$!")
    for ((tries = 0; tries < 500; tries++)); do
        [ "$(stat -c %s "$dir/chain.img")" -eq 0 ] || break
        sleep 0.02
    done
    loop=$(losetup --find --show --direct-io=on "$dir/chain.img")
    loops+=("$loop")
    mkfs.ext4 -q -F -b 4096 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o data=journal,journal_async_commit "$loop" "$dir/mnt"
    mounts+=("$dir/mnt")
    "tests/workloads/$program.py" --sources "$dir/sources" "$dir/mnt" "$scale" "$@" || status=$?
    umount "$dir/mnt"
    mounts=()
    losetup -d "$loop"
    loops=()
    for ((tries = 0; tries < 500; tries++)); do
        ! fusermount3 -u "$dir/chain.img" 2>/dev/null || break
        sleep 0.02
    done
    wait "${pids[-1]}" || true
    unset 'pids[-1]'
    stop
    case $status in
        0) mv "$log.part" "$log" ;;
        77) rm -f "$log.part" ;;
        *) exit 1 ;;
    esac
}

found=()
for entry in "${workloads[@]}"; do
    name=${entry%%=*}
    [[ $name =~ ${ONLY:-.} ]] || continue
    read -ra words <<<"${entry#*=}"
    if [ ! -e "$logs/$name.log" ]; then
        echo "== $name" >&2
        one "$logs/$name.log" "${words[@]}" >&2
    fi
    [ ! -e "$logs/$name.log" ] || found+=("$logs/$name.log")
done
cargo run --quiet --release --locked -p vellum-codec --example choice -- "${found[@]}"
printf '\n%s, Linux %s, %s processors, workloads at %s%%.\n' "$(date +%F)" "$(uname -r | cut -d- -f1)" "$(nproc)" "$scale"
