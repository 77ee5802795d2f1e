#!/usr/bin/env bash
# Captures real loads as traces for `vellum lab paper omd --traces DIR`: on an ext4 on a file that `vellum record` serves,
#
#     index      apt-get update in a chroot of Debian, its lists empty
#     install    apt-get install of PACKAGES in that chroot
#     browse     a session of headless Chromium, its profile on the file system
#     sort       a sort like MapReduce's, with two replicas of its input and output
#     ycsb       YCSB's workload A on SQLite, each update durable
#     frames     generated frames of a camera that does not move, in files
#
# and prints what each wrote, and how much of that it had written before. A trace contains no byte of the data; its
# digests are keyed, so equal contents in traces of two captures cannot be recognized.
#
#     benches/capture.sh DIR [NAME...]        needs root, /dev/fuse, loop devices; index and install need debootstrap and a mirror
#
# SCALE=100 is the size in per cent of the last four; SUITE, MIRROR and PACKAGES say what is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

[ $# -ge 1 ] || { echo "usage: benches/capture.sh DIR [index|install|browse|sort|ycsb|frames ...]"; exit 2; }
out=$1
shift
[ $# -gt 0 ] || set -- index install browse sort ycsb frames
if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    echo "SKIP: capture: it needs root, /dev/fuse and /dev/loop-control"
    exit 0
fi
for tool in mkfs.ext4 losetup fusermount3 python3; do
    command -v "$tool" >/dev/null || { echo "SKIP: capture: it needs $tool"; exit 0; }
done
VELLUM=${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}
[ -x "$VELLUM" ] || { echo "capture: $VELLUM is missing: cargo build --release -p vellum-cli"; exit 2; }
VELLUM=$(realpath "$VELLUM")
SCALE=${SCALE:-100} SUITE=${SUITE:-bookworm} MIRROR=${MIRROR:-http://deb.debian.org/debian}
PACKAGES=${PACKAGES:-build-essential python3 git}

mkdir -p "$out"
out=$(realpath "$out")
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-capture.XXXXXX")
mkdir "$dir/fuse" "$dir/mnt" "$dir/sources"
server='' loop=''

down() {
    ! mountpoint -q "$dir/mnt" || umount "$dir/mnt"
    [ -z "$loop" ] || losetup -d "$loop"
    loop=''
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    server=''
}
cleanup() {
    local status=$?
    set +e
    [ "$status" -eq 0 ] || { echo "capture: FAILED"; tail -n 20 "$dir/log" 2>/dev/null; }
    down
    fusermount3 -u "$dir/fuse" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# The plain file, without a recorder.
plain() { # FILE
    loop=$(losetup --find --show "$1")
    mount -o noatime "$loop" "$dir/mnt"
}

recorded() { # FILE TRACE
    rm -f "$2"
    "$VELLUM" record "v=$1" --output "$2" --fuse "$dir/fuse" >"$dir/log" 2>&1 &
    server=$!
    for ((tries = 0; tries < 500; tries++)); do
        [ ! -e "$dir/fuse/v" ] || break
        kill -0 "$server" 2>/dev/null || { cat "$dir/log"; return 1; }
        sleep 0.02
    done
    loop=$(losetup --find --show --direct-io=on "$dir/fuse/v")
    mount -o noatime "$loop" "$dir/mnt"
}

disk() { # FILE SIZE
    truncate -s "$2" "$1"
    mkfs.ext4 -q -F -b 4096 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 "$1"
}

# A Debian to update and to install packages in; not recorded.
system() {
    [ ! -e "$dir/system" ] || return 0
    disk "$dir/system" 4G
    plain "$dir/system"
    debootstrap --variant=minbase "$SUITE" "$dir/mnt" "$MIRROR" >"$dir/log" 2>&1
    cp /etc/resolv.conf "$dir/mnt/etc/resolv.conf"
    rm -rf "$dir/mnt/var/lib/apt/lists"
    down
}

in_system() { # COMMAND...
    chroot "$dir/mnt" /usr/bin/env DEBIAN_FRONTEND=noninteractive "$@" >>"$dir/log" 2>&1
}

workload() { # NAME
    "tests/workloads/$1.py" --sources "$dir/sources" "$dir/mnt" "$SCALE"
}

capture() { # NAME
    echo "capturing $1" >&2
    case $1 in
        index | install)
            command -v debootstrap >/dev/null || { echo "SKIP: capture: $1 needs debootstrap"; return 0; }
            system
            [ "$1" = index ] || [ -n "${updated:-}" ] || {
                plain "$dir/system"
                in_system apt-get update
                down
            }
            updated=1
            recorded "$dir/system" "$out/$1.trace"
            case $1 in
                index) in_system apt-get update ;;
                install) in_system apt-get install -y --no-install-recommends $PACKAGES ;;
            esac
            ;;
        browse | sort | ycsb | frames)
            rm -f "$dir/disk"
            disk "$dir/disk" 2G
            recorded "$dir/disk" "$out/$1.trace"
            workload "$1" >>"$dir/log" 2>&1 || { [ $? -eq 77 ] && tail -n 1 "$dir/log" && rm -f "$out/$1.trace"; }
            ;;
        *)
            echo "capture: there is no $1: index, install, browse, sort, ycsb, frames"
            return 2
            ;;
    esac
    down
}

for name in "$@"; do
    capture "$name"
done
"$VELLUM" lab shares "$out"/*.trace
