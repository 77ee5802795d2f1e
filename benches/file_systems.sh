#!/usr/bin/env bash
# What deltas and compression save on file systems other than ext4, of which the scout knows nothing: XFS and btrfs, created and mounted by
# default, once on plain storage (nbdkit's file plugin) and on volumes with more and more switched on. Bytes that reach the medium are
# counted, including the unmount; no time is measured, so the machine may be busy. Each file system is checked afterwards.
#
# Needs root, /dev/fuse, loop devices, and mkfs.xfs and mkfs.btrfs (scripts/setup.sh file-systems). Prints docs/benchmarks/file-systems.md;
# without ONLY it also writes it.
#
#     benches/file_systems.sh          SCALE=100 the loads' size in per cent, ONLY=REGEX some of them
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
scale=${SCALE:-100} volume=2G
loads=(
    'appends, fsync each=writes sequential 1'
    'random, fsync each 10=writes random 10'
    'copy of a source tree=tree'
    'SQLite=sqlite'
    'PostgreSQL, pgbench=pgbench'
    'varmail=varmail'
)
systems=(xfs btrfs)
# A volume's policies, with duplicates and zeros off: only its encodings may save writes here.
declare -A policy=([off]=compress=off [delta]=delta=on [zstd]=compress=zstd [zstd+delta]=compress=zstd,delta=on)
configurations=(plain off delta zstd zstd+delta)

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo 'file_systems: it needs root, /dev/fuse and /dev/loop-control' >&2
    exit 1
fi
for tool in nbdkit nbdinfo nbdfuse jq losetup fusermount3 python3 mkfs.xfs xfs_repair mkfs.btrfs; do
    command -v "$tool" >/dev/null || { echo "file_systems: no $tool: run scripts/setup.sh file-systems" >&2; exit 1; }
done
dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-file-systems.XXXXXX")
# PostgreSQL runs as another user, and must be able to open its files.
chmod 755 "$dir"
mkdir -m 755 "$dir/mnt" "$dir/sources"
# shellcheck source=benches/servers.sh
. benches/servers.sh
trap cleanup EXIT
trap 'exit 130' INT TERM

made() { # DEVICE
    case $system in
        xfs) mkfs.xfs -q -f "$1" ;;
        btrfs) mkfs.btrfs -q -f "$1" >/dev/null ;;
    esac
}

is_sound() { # DEVICE
    case $system in
        xfs) xfs_repair -n "$1" ;;
        btrfs) btrfs check --readonly "$1" ;;
    esac >"$dir/check" 2>&1 || { cat "$dir/check" >&2; exit 1; }
}

run() { # FLAGS
    local words
    read -ra words <<<"$command"
    "tests/workloads/${words[0]}.py" "$@" --sources "$dir/sources" "$dir/mnt" "$scale" "${words[@]:1}" >"$dir/out" 2>&1 ||
        { cat "$dir/out" >&2; exit 1; }
}

mounted() { mount "$loop" "$dir/mnt" && mounts=("$dir/mnt"); }
unmounted() { umount "$dir/mnt" && mounts=(); }

# Bytes that reached the medium, blocks stored as deltas, and the bytes of those.
counted() {
    if [ "$configuration" = plain ]; then
        awk '{ printf "%.0f 0 0\n", $7 * 512 }' "/sys/block/$(basename "$loop")/stat"
    else
        "$VELLUM" stats "$dir/store" --json | jq -r '.[0].stats | "\(.medium.written_bytes) \(.core.delta_blocks) \(.core.delta_bytes)"'
    fi
}

one() {
    rm -f "$dir/store"
    if [ "$configuration" = plain ]; then
        truncate -s "$volume" "$dir/store"
        start nbdkit -f -U "$dir/socket" file "$dir/store"
    else
        "$VELLUM" create "$dir/store" --size "$volume" >/dev/null
        start "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" --with "compress=off,delta=off,zero=off,dedup=off,${policy[$configuration]}"
    fi
    : >"$dir/chain.img"
    nbdfuse "$dir/chain.img" "$(socket_uri)" &
    pids+=("$!")
    until [ "$(stat -c %s "$dir/chain.img")" -ne 0 ]; do sleep 0.02; done
    loop=$(losetup --find --show --direct-io=on "$dir/chain.img")
    loops+=("$loop")
    made "$loop"
    mounted
    run --prepare
    unmounted
    local before after
    read -ra before < <(counted)
    mounted
    run
    unmounted
    read -ra after < <(counted)
    is_sound "$loop"
    losetup -d "$loop"
    loops=()
    until fusermount3 -u "$dir/chain.img" 2>/dev/null; do sleep 0.02; done
    wait "${pids[-1]}" || true
    unset 'pids[-1]'
    stop
    for i in 0 1 2; do counts+=("$((after[i] - before[i]))"); done
}

exec 3>&1
{
    cat <<TEXT
# What deltas and compression spare other file systems

\`benches/file_systems.sh\` on $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD): XFS ($(mkfs.xfs -V | awk '{ print $3 }')) and btrfs ($(mkfs.btrfs --version | awk '{ print $NF }')) as they are made and
mounted by default, kernel $(uname -r | cut -d- -f1), on a volume of $volume behind NBD, nbdfuse and a loop device; workloads of tests/workloads at $scale% of their usual
size, the unmount included. Of these file systems the volume knows nothing: what is overwritten by something alike is stored as its
difference to that, whatever it is ([0015](../decisions/0015-deltas.md)). btrfs overwrites nothing in place but its superblocks, so there is little to hold a new block against.

- **plain**: nbdkit's file plugin; **off**: a volume with nothing switched on (headers, summaries and the map)
- **delta**: with \`delta=on\` alone, which is CSA-FS without its parser; **zstd**, **zstd+delta**: \`compress=zstd\`, and both

MiB written to the medium; in brackets, of what plain storage writes:

| | plain | off | delta | zstd | zstd+delta | deltas | bytes a delta |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
TEXT
    for system in "${systems[@]}"; do
        for entry in "${loads[@]}"; do
            load=${entry%%=*} command=${entry#*=} counts=()
            [[ $command =~ ${ONLY:-.} ]] || continue
            for configuration in "${configurations[@]}"; do
                one
                echo "$system, $load, $configuration" >&3
            done
            # Three counts of each configuration; the deltas are those of the last.
            awk -v name="$system: $load" '{
                printf "| %s | %.1f", name, $1 / 1048576
                for (i = 4; i < NF; i += 3) printf " | %.1f (%.2f)", $i / 1048576, $i / $1
                printf " | %d | %s |\n", $(NF - 1), $(NF - 1) ? sprintf("%.0f", $NF / $(NF - 1)) : "-"
            }' <<<"${counts[*]}"
        done
    done
    cat <<'TEXT'

Fewer than half of plain storage's bytes nearly everywhere, where data are made of text or tables; the appends' and the random writes' blocks are noise. XFS writes its log in sectors of 512 bytes, each of which is a block
of 4 KiB here, and asks for two flushes an fsync, each of which is a page at least: hence 1.9 for 1 of the appends. Its tree is overwritten in place, and SQLite's pages too, so deltas find their bases there; on btrfs they find few.
TEXT
} >"$dir/file-systems.md"
cat "$dir/file-systems.md"
[ -n "${ONLY:-}" ] || cp "$dir/file-systems.md" docs/benchmarks/file-systems.md
