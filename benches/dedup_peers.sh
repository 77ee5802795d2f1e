#!/usr/bin/env bash
# `make bench-dedup-peers`: copies of one file (kvdo#82) and files without copies, on a Vellum volume and on its peers: space, bytes to the
# medium, memory. Rewrites docs/benchmarks/dedup-peers.md.
#
# On this host ext4 on a plain file, ext4 on a volume with dedup=off and on, and zfs-fuse with dedup=off and on, all over loop; in a guest
# of Debian's kernel ext4 on a plain disk, on dm-vdo, and on a volume over ublk. Needs root.
# TIMES=1 adds a column of seconds, for an idle machine. PARTS="host guest" selects parts. VDOFORMAT: `vdoformat`, which Debian lacks (build
# it from the dm-vdo/vdo sources). QUICK=1 is for testing the script: small, and it writes no document.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

VELLUM=$(realpath "${VELLUM:-target/release/vellum}")
PARTS=${PARTS:-host guest}
copies=24 file=128 unique=256 guest_file=8 guest_unique=32 volume=6G
[ -z "${QUICK:-}" ] || { file=8 unique=64 guest_file=2 guest_unique=16; }
[ "$(id -u)" -eq 0 ] || { echo "bench-dedup-peers: loop devices and mounts need root" >&2; exit 1; }
for tool in losetup mkfs.ext4 fusermount3 nbdinfo jq; do
    command -v "$tool" >/dev/null || { echo "bench-dedup-peers: no $tool: run scripts/setup.sh bench" >&2; exit 1; }
done

dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/vellum-peers.XXXXXX")
results=$dir/results
notes=$dir/notes
touch "$results" "$notes"
mkdir "$dir/fuse" "$dir/mnt" "$dir/source"
# shellcheck source=benches/servers.sh
. benches/servers.sh
pool=''
finish() {
    set +e
    [ -z "$pool" ] || zpool destroy -f "$pool" 2>/dev/null
    cleanup
}
trap finish EXIT
trap 'exit 130' INT TERM

note() { echo "- $*" | tee -a "$notes"; }

# Where, system, workload; bytes of the files, to the medium, of space; memory in MiB; seconds.
record() {
    local IFS=$'\t'
    echo "$*" >>"$results"
    echo "   $*"
}

# The files that are copied: `one` many times, `other` once. Their contents differ.
head -c "${file}M" /dev/urandom >"$dir/source/one"
head -c "${unique}M" /dev/urandom >"$dir/source/other"

# write WORKLOAD: copies like cp, each durable before the next.
write() {
    local copy
    case $1 in
        copies) for ((copy = 0; copy < copies; copy++)); do cp "$dir/source/one" "$dir/mnt/$copy" && sync -f "$dir/mnt/$copy"; done ;;
        unique) cp "$dir/source/other" "$dir/mnt/other" && sync -f "$dir/mnt/other" ;;
    esac
}

bytes_of() { # WORKLOAD
    case $1 in copies) echo $((copies * file << 20)) ;; unique) echo $((unique << 20)) ;; esac
}

loop_of() { # FILE
    loop=$(losetup --find --show --direct-io=on "$1")
    loops+=("$loop")
}

loop_off() {
    losetup -d "$loop"
    unset 'loops[-1]'
}

written_to_loop() { awk '{ print $7 * 512 }' "/sys/block/${loop#/dev/}/stat"; }

ext4_on() { # DEVICE
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$1"
    mount -o data=ordered "$1" "$dir/mnt"
    mounts+=("$dir/mnt")
    sync -f "$dir/mnt"
}

unmount() {
    umount "$dir/mnt"
    unset 'mounts[-1]'
}

peak_mib() { awk '/^VmHWM/ { printf "%.0f", $2 / 1024 }' "/proc/$1/status"; }

plain() { # WORKLOAD
    local before begun seconds
    rm -f "$dir/store" && truncate -s "$volume" "$dir/store"
    loop_of "$dir/store"
    ext4_on "$loop"
    before=$(written_to_loop)
    local used
    used=$(df --output=used -B1 "$dir/mnt" | tail -1)
    begun=$(seconds_now)
    write "$1"
    seconds=$(awk -v a="$begun" -v b="$(seconds_now)" 'BEGIN { print b - a }')
    used=$(($(df --output=used -B1 "$dir/mnt" | tail -1) - used))
    unmount
    record host 'ext4 on a plain file' "$1" "$(bytes_of "$1")" $(($(written_to_loop) - before)) "$used" 0 "$seconds"
    loop_off
}

counted() { "$VELLUM" stats "$dir/store" --json | jq ".[0].stats.$1"; }

vellum() { # WORKLOAD POLICY
    local before space begun seconds
    rm -f "$dir/store"
    "$VELLUM" create "$dir/store" --size "$volume" >/dev/null
    start "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" --fuse "$dir/fuse" --research "compress=off,delta=off,dedup=$2"
    loop_of "$dir/fuse/v"
    ext4_on "$loop"
    before=$(counted medium.written_bytes)
    space=$(counted core.live_blocks)
    begun=$(seconds_now)
    write "$1"
    seconds=$(awk -v a="$begun" -v b="$(seconds_now)" 'BEGIN { print b - a }')
    unmount
    space=$((($(counted core.live_blocks) - space) * 4096))
    record host "ext4 on Vellum, dedup=$2" "$1" "$(bytes_of "$1")" $(($(counted medium.written_bytes) - before)) "$space" "$(peak_mib "$server")" "$seconds"
    loop_off
    stop
}

# What a pool has allocated, once its last transactions are complete: only then are they counted.
settled() {
    local now last='' same=0
    while [ "$same" -lt 3 ]; do
        now=$(zpool list -H -o allocated "$pool" | numfmt --from=iec)
        if [ "$now" = "$last" ]; then same=$((same + 1)); else same=0; fi
        last=$now
        sleep 4
    done
    echo "$last"
}

zfs_fuse() { # WORKLOAD dedup=on|off
    local begun seconds space before used daemon table
    rm -f "$dir/store" && truncate -s "$volume" "$dir/store"
    loop_of "$dir/store"
    zfs-fuse --no-daemon --no-kstat-mount --disable-block-cache -p "$dir/zfs.pid" >"$dir/zfs.log" 2>&1 &
    daemon=$!
    pids+=("$daemon")
    local tries
    for ((tries = 0; tries < 100; tries++)); do zpool list >/dev/null 2>&1 && break; sleep 0.1; done
    pool=vellum-peer
    zpool create -f -m "$dir/mnt" -O dedup="$2" -O compression=off -O atime=off "$pool" "$loop"
    sync
    before=$(written_to_loop)
    used=$(zpool list -H -o allocated "$pool" | numfmt --from=iec)
    begun=$(seconds_now)
    write "$1"
    seconds=$(awk -v a="$begun" -v b="$(seconds_now)" 'BEGIN { print b - a }')
    sync
    space=$(($(settled) - used))
    table=$(zpool status -D "$pool" | sed -n 's/^.*DDT entries/DDT entries/p' | head -1)
    [ "$2" = off ] || note "zfs-fuse, $1: $table"
    zpool export "$pool"
    record host "zfs-fuse, dedup=$2" "$1" "$(bytes_of "$1")" $(($(written_to_loop) - before)) "$space" "$(peak_mib "$daemon")" "$seconds"
    pool=''
    kill "$daemon"
    wait "$daemon" 2>/dev/null || true
    unset 'pids[-1]'
    loop_off
}

host() {
    local workload dedup
    for workload in copies unique; do
        plain "$workload"
        for dedup in off on; do vellum "$workload" "$dedup"; done
        if ! command -v zfs-fuse >/dev/null; then
            note "zfs-fuse is missing: apt-get install zfs-fuse"
        else
            for dedup in off on; do zfs_fuse "$workload" "$dedup"; done
        fi
    done
}

# The modules of the guest's kernel that are not in its own image.
guest_modules() { # INTO
    local guest version work=$dir/kernel module
    guest=$(tests/guest/build.sh) || return 1
    version=$(cpio -t --quiet <"$guest/base.cpio" | sed -n 's|^lib/modules/\([^/]*\)$|\1|p' | head -1)
    mkdir -p "$work" "$1/modules"
    (cd "$work" && apt-get download "linux-image-$version" >/dev/null 2>&1) || return 1
    dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb | tar -x -C "$work" --wildcards \
        './lib/modules/*/kernel/drivers/md/dm-mod*' './lib/modules/*/kernel/drivers/md/dm-bufio*' \
        './lib/modules/*/kernel/drivers/md/dm-vdo/*' './lib/modules/*/kernel/lib/lz4/lz4_compress*'
    find "$work/lib" -name '*.ko.xz' -exec xz -d {} +
    for module in dm-mod dm-bufio lz4_compress dm-vdo; do
        find "$work/lib" -name "$module.ko" -exec cp {} "$1/modules/" \;
        [ -e "$1/modules/$module.ko" ] || return 1
    done
    note "Guest: kernel $version, QEMU without KVM"
}

in_guest() { # SYSTEM WORKLOAD
    MEMORY=2048 DISK=8G PATIENCE=1500 FILES=$dir/files TOOLS=$tools VELLUM=$VELLUM \
        tests/guest/run.sh benches/dedup_guest.sh "$1" "$2" "$copies" "$guest_file" "$guest_unique"
}

guest() {
    local files=$dir/files tools=dmsetup system workload out code
    command -v qemu-system-x86_64 >/dev/null || { note "no guest: run scripts/setup.sh guest"; return; }
    mkdir -p "$files"
    local systems=(plain vellum-off vellum-on)
    if ! VDOFORMAT=$(command -v "${VDOFORMAT:-vdoformat}"); then
        note "dm-vdo: no vdoformat: make it from the sources of dm-vdo/vdo, and name it in VDOFORMAT"
    elif ! command -v dmsetup >/dev/null; then
        note "dm-vdo: no dmsetup: apt-get install dmsetup"
    elif ! guest_modules "$files"; then
        note "dm-vdo: the guest's kernel has no module of that name, or cannot be downloaded again"
    else
        systems+=(vdo)
        tools+=" $VDOFORMAT"
    fi
    for workload in copies unique; do
        for system in "${systems[@]}"; do
            code=0
            out=$(in_guest "$system" "$workload") || code=$?
            if [ "$code" -eq 77 ]; then
                note "no guest can be made here"
                return
            elif [ "$code" -ne 0 ]; then
                echo "$out" >&2
                note "guest, $system, $workload: failed ($code)"
                continue
            fi
            local line
            line=$(sed -n 's/^result //p' <<<"$out")
            # shellcheck disable=SC2086 # numbers
            record guest "$(sed -n 's/^name //p' <<<"$out")" "$workload" $line
        done
    done
}

for part in $PARTS; do
    case $part in
        host | guest) "$part" ;;
        *) echo "bench-dedup-peers: no part '$part': host and guest" >&2; exit 2 ;;
    esac
done

{
    cat <<TEXT
# Deduplication beside its peers

\`make bench-dedup-peers\` on $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD). *Copies*: $copies of one file of $file MiB with \`cp\` (in the guest of $guest_file MiB), each durable
before the next begins; dm-vdo was slow at it (kvdo#82). *Unique*: one file of $unique MiB (in the guest $guest_unique MiB) of random bytes. All systems store whole
blocks: compression is off.

- Machine: $(nproc) CPUs ($(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), kernel $(uname -r | cut -d- -f1)
$(sort -u "$notes")

*To the medium*: what the device under it was written, with the file system's own and what was still to be written at unmounting, to the bytes of the files.
*Space*: what it takes more than before; of dm-vdo its data blocks, without the index and the slabs' metadata that formatting sets aside. *Saved*: of the bytes
of the files. *Memory*: on the host the server's peak (of Vellum its index of 64 MiB and its buffers are in it, of zfs-fuse its cache); in the guest what is no
longer available when caches have been dropped, give or take 20 MiB. dm-vdo has the least that it takes: an index of 0.25 GB and a cache of 128 MiB. zfs-fuse
compares records of 128 KiB, the others blocks of 4 KiB.

| where | system | files | to the medium | space | saved | memory |${TIMES:+ time |}
| --- | --- | --- | ---: | ---: | ---: | ---: |${TIMES:+ ---: |}
TEXT
    awk -F'\t' -v times="${TIMES:-}" '{
        printf "| %s | %s | %s, %d MiB | %.3f | %.0f MiB | %.1f%% | %s |", $1, $2, $3, $4 / 1048576, $5 / $4, $6 / 1048576, 100 * (1 - $6 / $4), $7 ? $7 " MiB" : "-"
        if (times) printf " %.1f s |", $8
        print ""
    }' "$results"
} >"$dir/dedup-peers.md"
cat "$dir/dedup-peers.md"
if [ -z "${QUICK:-}" ] && [ "$PARTS" = "host guest" ]; then
    cp "$dir/dedup-peers.md" docs/benchmarks/dedup-peers.md
    echo "written to docs/benchmarks/dedup-peers.md"
fi
