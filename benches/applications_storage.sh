# shellcheck shell=bash disable=SC2034,SC2154
# Storage of the applications' benchmark: the medium, its contents, and the counters. Sourced by applications.sh, which sets
# `configuration`: `ordered`, `xfs` and `btrfs` on plain storage, `vellum` without options, `vellum PROPERTY=VALUE,...` with some.

# The medium's file, and what throttles it if there is a limit.
store=$dir/store
volume_path='' loop='' device='' server_pid=''

is_volume() { [[ $configuration == vellum* ]]; }
# The properties given to a volume, if any.
properties() { [[ $configuration != *' '* ]] || echo "--research ${configuration#* }"; }

# The medium as a block device in $loop: a file, or one with a limited rate.
medium_up() {
    local under=$store
    if [ -n "$limit" ]; then
        # In bits; a burst of a tenth of a second is allowed.
        start nbdkit -f -U "$dir/socket" --filter=rate file "$store" rate=$(($(numfmt --from=iec "$limit") * 8)) burstiness=0.1
        : >"$dir/chain.img"
        nbdfuse "$dir/chain.img" "$(socket_uri)" &
        pids+=("$!")
        until [ "$(stat -c %s "$dir/chain.img")" -ne 0 ]; do sleep 0.02; done
        under=$dir/chain.img
    fi
    loop=$(losetup --find --show --direct-io=on "$under")
    loops=("$loop")
}

medium_down() {
    [ -n "$loop" ] || return 0
    losetup -d "$loop"
    loops=() loop=
    [ -n "$limit" ] || return 0
    # The kernel releases the loop device's file a moment later.
    until fusermount3 -u "$dir/chain.img" 2>/dev/null; do sleep 0.02; done
    wait "${pids[-1]}" || true
    unset 'pids[-1]'
    stop
}

# The file systems, created and mounted by default; ext4's tables are complete, so that no part of them is written later.
formatted() {
    case $configuration in
        ordered) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$loop" ;;
        xfs) mkfs.xfs -q -f "$loop" ;;
        btrfs) mkfs.btrfs -q -f "$loop" >/dev/null ;;
    esac
}

mount_options() {
    case $configuration in
        ordered) echo -o data=ordered ;;
        btrfs) echo -o compress=zstd ;;
    esac
}

# A fresh medium with an empty file system, or an aged one, which is created once for each configuration.
made() {
    if [ "$state" = fresh ]; then
        made_fresh
        return
    fi
    local aged="$dir/aged ${configuration}"
    if [ ! -e "$aged" ]; then
        made_fresh
        opened
        tests/workloads/age.py "$dir/mnt" 90 3
        closed
        medium_down
        mv "$store" "$aged"
    fi
    medium_down
    cp --sparse=always "$aged" "$store"
}

made_fresh() {
    medium_down
    rm -f "$store"
    volume_path=$store
    if [ "$MEDIUM" = device ] || ! is_volume; then
        # A volume needs room for itself on a device: it then offers as much as the file would.
        if is_volume; then truncate -s "$(numfmt --from=iec "$volume" | awk '{ printf "%d", $1 * 1.15 }')" "$store"; else truncate -s "$volume" "$store"; fi
        medium_up
        volume_path=$loop
    fi
    if is_volume; then
        "$VELLUM" create "$volume_path" --size "$volume" >/dev/null
        # shellcheck disable=SC2046 # words
        "$VELLUM" attach "$volume_path" $(properties) --mkfs --mount "$dir/mnt" >/dev/null
        "$VELLUM" detach "$volume_path" >/dev/null
    else
        formatted
    fi
}

# Mounted in $dir/mnt, from $device.
opened() {
    volume_path=$store
    if [ "$MEDIUM" = device ] || ! is_volume; then
        [ -n "$loop" ] || medium_up
        volume_path=$loop
    fi
    if is_volume; then
        # shellcheck disable=SC2046 # words
        device=$("$VELLUM" attach "$volume_path" $(properties) --mount "$dir/mnt" | cut -d' ' -f1)
        server_pid=$(jq --arg at "$device" -s -r '.[] | select(.device == $at) | .server.pid' /run/vellum/*.json)
    else
        device=$loop
        # shellcheck disable=SC2046 # words
        mount $(mount_options) "$loop" "$dir/mnt"
    fi
    mounts=("$dir/mnt")
}

unmounted() {
    umount "$dir/mnt"
    mounts=()
}

# Unmounted, and the server has ended.
closed() {
    [ "${#mounts[@]}" -eq 0 ] || unmounted
    ! is_volume || "$VELLUM" detach "$volume_path" >/dev/null
}

# What was sent to the loop device: bytes and flushes.
sent_to_loop() { [ -z "$loop" ] && echo 0 0 || awk '{ printf "%d %d\n", $7 * 512, $16 }' "/sys/block/$(basename "$loop")/stat"; }

window_begins() {
    read -r bytes_before flushes_before < <(sent_to_loop)
    : >"$ORPHANS"
}

# Seconds of a processor that the server has taken.
server_seconds_now() {
    ! is_volume || awk -v hertz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / hertz }' "/proc/$server_pid/stat"
}

# The digest of all files. What reading them takes of the server's processor is not the application's: $check_seconds.
digested() {
    local before after
    before=$(server_seconds_now)
    digest=$(tests/workloads/digest.py "$dir/mnt")
    after=$(server_seconds_now)
    check_seconds=$(awk -v before="${before:-0}" -v after="${after:-0}" 'BEGIN { print after - before }')
}

# The server's own counters, before it ends: what it received, and what it sent to the medium.
asked_server() {
    is_volume || return 0
    "$VELLUM" stats "$volume_path" --json >"$dir/stats"
    read -r host_bytes syncs < <(jq -r '.[0].stats | "\(.clients.write.bytes) \(.medium.syncs + .medium.durable_writes)"' "$dir/stats")
}

# The costs: $medium_bytes, $host_bytes, $syncs, $server_seconds.
window_ends() {
    local bytes flushes
    read -r bytes flushes < <(sent_to_loop)
    medium_bytes=$((bytes - bytes_before))
    if ! is_volume; then
        host_bytes=$medium_bytes syncs=$((flushes - flushes_before)) server_seconds=0
        return
    fi
    local tries
    for ((tries = 0; tries < 500; tries++)); do
        ! grep -q "^$server_pid " "$ORPHANS" || break
        sleep 0.02
    done
    local by_server
    read -r _ by_server server_seconds < <(grep "^$server_pid " "$ORPHANS")
    server_seconds=$(awk -v all="$server_seconds" -v checks="$check_seconds" 'BEGIN { printf "%.3f", all - checks }')
    # Two counters of the kernel for the same writes. On a device the loop's is right: the server's has a write twice that a full queue
    # has turned away, and that came again.
    if [ "$MEDIUM" = device ]; then
        if [ "$((100 * by_server))" -lt "$((99 * medium_bytes))" ]; then
            echo "bench-applications: the device below got $medium_bytes bytes, the server has written only $by_server" >&2
            exit 1
        fi
    else
        medium_bytes=$by_server
    fi
}

# Checks that all files, read from the medium, are unchanged, and that the file system is sound.
sound() { # DIGEST
    opened
    local digest
    digest=$(tests/workloads/digest.py "$dir/mnt")
    unmounted
    [ "$digest" = "$1" ] || { echo "bench-applications: $name, $configuration: the files have changed" >&2; exit 1; }
    case $configuration in
        xfs) xfs_repair -n "$device" ;;
        btrfs) btrfs check --readonly "$device" ;;
        *) e2fsck -fn "$device" ;;
    esac >"$dir/check" 2>&1 || { cat "$dir/check" >&2; exit 1; }
    closed
    ! is_volume || "$VELLUM" check "$volume_path" >"$dir/check" || { cat "$dir/check" >&2; exit 1; }
}

# Cleans up, whenever the script ends.
let_go() {
    set +e
    [ -z "$volume_path" ] || "$VELLUM" detach "$volume_path" >/dev/null 2>&1
}
