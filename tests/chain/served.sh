# shellcheck shell=bash disable=SC2154
# A volume served over FUSE, with a loop device on its file for a real ext4: the code shared by the tests in this directory. A script that
# sources this must set `name` first; it ends with nothing mounted and nothing running, however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PATH:/usr/sbin:/sbin"

skip() { # WHY
    echo "SKIP: $name: $1"
    exit 0
}

needs() { # TOOL...
    local tool
    for tool in fusermount3 losetup jq "$@"; do
        command -v "$tool" >/dev/null || skip "it needs $tool"
    done
}

if [ "$(id -u)" -ne 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    skip 'it needs root, /dev/fuse and /dev/loop-control'
fi
# An existing binary may be from other sources.
[ -n "${VELLUM:-}" ] || cargo build --quiet --release --locked -p vellum-cli
VELLUM=$(realpath "${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}")

# `log` is the server's output, `out` that of the last tool.
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-$name.XXXXXX")
mkdir "$dir/fuse" "$dir/mnt"
# The processes of the server and of what works on it; the loop devices of the volume and of partitions of it.
server='' load='' loop='' parts=()
# Where its file systems are mounted; other mounts, until the end; and the step in which a failure happened.
mounts=("$dir/mnt") others=() current=''

cleanup() {
    local status=$?
    set +e
    [ -z "$load" ] || kill -KILL "$load" 2>/dev/null
    if [ "$status" -ne 0 ]; then
        echo "$name: FAILED${current:+ in: $current}"
        tail -n 20 "$dir/log" "$dir/out"
    fi
    let_go
    [ -z "$server" ] || kill "$server" 2>/dev/null
    wait 2>/dev/null
    [ "${#others[@]}" -eq 0 ] || umount "${others[@]}" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Unmounts everything, including mounts that have lost their server.
let_go() {
    local place
    for place in "${mounts[@]}"; do
        ! mountpoint -q "$place" || umount "$place" 2>/dev/null || umount -l "$place" || true
    done
    for place in "${parts[@]}" "$loop"; do
        [ -z "$place" ] || losetup -d "$place" 2>/dev/null || true
    done
    fusermount3 -u "$dir/fuse" 2>/dev/null || fusermount3 -uz "$dir/fuse" 2>/dev/null || true
    loop='' parts=()
}

# Starts a server; sets `loop` to a block device of its volume `v`.
start() { # COMMAND...
    rm -f "$dir/killed"
    "$VELLUM" "$@" --fuse "$dir/fuse" >"$dir/log" 2>&1 &
    server=$!
    local tries
    for ((tries = 0; tries < 3000; tries++)); do
        if [ -e "$dir/fuse/v" ]; then
            loop=$(losetup --find --show --direct-io=on "$dir/fuse/v")
            return
        fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    exit 1
}

# Ends the server like a user does.
finish() {
    let_go
    kill "$server"
    wait "$server"
    server=''
}

# Ends the server like a crash, and then what works on it. From then on the result of fsync does not count: jbd2 ignores the result of the
# flush after an asynchronous commit (jbd2_journal_commit_transaction), so a file counts as synced only while there is no `killed`.
crash() {
    : >"$dir/killed"
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=''
    [ -n "$load" ] || return 0
    sleep 0.2
    kill -KILL "$load" 2>/dev/null || true
    wait "$load" 2>/dev/null || true
    load=''
}

sound() { "$VELLUM" check "$dir/volume" >"$dir/out"; }
clean() { e2fsck -fn "$1" >"$dir/out" 2>&1; } # DEVICE

told() { # JQ-FILTER: of what the volume counts
    "$VELLUM" stats "$dir/volume" --json | jq -r ".[0].stats | $1"
}
