# Servers of a benchmark: Vellum's and its peers', started, measured and reliably stopped. Sourced by bench.sh.

# LIMIT=100M limits servers to that many bytes a second of writes and as many of reads on the disk of $dir, by a control group, which
# imitates an eMMC.
group=
if [ -n "${LIMIT:-}" ]; then
    group=/sys/fs/cgroup/blkio/vellum-bench.$$
    mkdir "$group" || { echo "bench: LIMIT needs root, and the blkio controller of control groups v1" >&2; exit 1; }
    disk=$(lsblk -dno MAJ:MIN "$(df --output=source "$dir" | tail -1)")
    for way in read write; do
        echo "$disk $(numfmt --from=iec "$LIMIT")" >"$group/blkio.throttle.${way}_bps_device"
    done
fi

# Started servers and mounts, newest last.
pids=()
mounts=()
loops=()

cleanup() {
    local i
    set +e
    for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do umount "${mounts[i]}" 2>/dev/null; done
    for i in "${loops[@]}"; do losetup -d "$i" 2>/dev/null; done
    [ -d "$dir/fuse" ] && fusermount3 -u "$dir/fuse" 2>/dev/null
    [ -e "$dir/chain.img" ] && fusermount3 -u "$dir/chain.img" 2>/dev/null
    for i in "${pids[@]}"; do kill "$i" 2>/dev/null; done
    for i in "${pids[@]}"; do wait "$i" 2>/dev/null; done
    rm -rf "$dir"
    [ -z "$group" ] || rmdir "$group"
}

socket_uri() { echo "nbd+unix:///?socket=$dir/socket"; }

# start COMMAND...: runs a server in the background until its socket answers; sets $server to its pid.
start() {
    rm -f "$dir/socket"
    "$@" >"$dir/server.log" 2>&1 &
    server=$!
    pids+=("$server")
    local tries
    for ((tries = 0; tries < 6000; tries++)); do
        if [ -S "$dir/socket" ] && nbdinfo --size "$(socket_uri)" >/dev/null 2>&1; then
            [ -z "$group" ] || echo "$server" >"$group/cgroup.procs"
            return
        fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    echo "bench: this server does not answer: $*" >&2
    cat "$dir/server.log" >&2
    exit 1
}

# Ends the server of the last `start` in an orderly way.
stop() {
    kill "$server"
    wait "$server" 2>/dev/null || true
    unset 'pids[-1]'
}

# Ends it at once, like a crash.
crash() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    unset 'pids[-1]'
}

# fresh PEER SIZE: a fresh store of that size, and a server of it.
fresh() {
    rm -f "$dir/store"
    case $1 in
        vellum) "$VELLUM" create "$dir/store" --size "$2" >/dev/null ;;
        file) truncate -s "$2" "$dir/store" ;;
        memory) memory_size=$2 ;;
    esac
    serve "$1"
}

# serve PEER: a server of the existing store.
serve() {
    case $1 in
        # A single export also answers to the empty name.
        vellum) start "$VELLUM" serve "v=$dir/store" --socket "$dir/socket" ;;
        file) start nbdkit -f -U "$dir/socket" file "$dir/store" ;;
        memory) start nbdkit -f -U "$dir/socket" memory "$memory_size" ;;
    esac
}

drop_caches() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

# nbd FIELD FIO-OPTIONS...: runs fio's NBD engine on the server, prints one number of its first job.
nbd() {
    local field=$1
    shift
    fio --name=bench --ioengine=nbd --uri="$(socket_uri)" --output-format=json --randrepeat=0 --refill_buffers "$@" \
        2>"$dir/fio.err" >"$dir/fio.json" || {
        cat "$dir/fio.err" "$dir/server.log" >&2
        exit 1
    }
    # fio may print notes before its JSON.
    sed -n '/^{/,$p' "$dir/fio.json" | jq "$field"
}

rss_mib() { awk '/^VmRSS/ { printf "%.0f", $2 / 1024 }' "/proc/$1/status"; }
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
seconds_now() { date +%s.%N; }
