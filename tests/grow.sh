#!/usr/bin/env bash
# A mounted file system grows with its volume, with `vellum grow --fs`, while files are written to it, and the server is killed at any
# moment of that (kill -9; in one of three lives the command with it). What was fsynced is there, a snapshot's contents are unchanged, the
# same command completes the growth, and no check complains. LIVES=n for more than a few, FS="ext4 xfs btrfs" in turn, FROM and TO set the
# sizes; needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
# In its own mount namespace: a namespace created meanwhile would keep our mounts and their devices.
if [ "${1:-}" != --own ] && unshare -m true 2>/dev/null; then exec unshare -m tests/grow.sh --own; fi
# Without other mounts, too: mkfs.btrfs reads each one on a loop device, and gives up at the first whose server is gone.
[ "${1:-}" != --own ] || sed -n 's/^\/dev\/loop[0-9]* \([^ ]*\) .*/\1/p' /proc/self/mounts | xargs -r umount -l
. tests/lib/begin.sh
LIVES=${LIVES:-4}
FROM=${FROM:-1G}
TO=${TO:-2G}
RANDOM=$((${SEED:=$$} % 32768))
needs mkfs.ext4 e2fsck resize2fs python3 jq
# CAP_SYS_RESOURCE, which the kernel requires to enlarge a mounted ext4: tests/guest.sh does that in a guest.
may_resize() { [ $(((0x$(sed -n 's/^CapEff:\t//p' /proc/self/status) >> 24) & 1)) -eq 1 ]; }
kinds=()
for kind in ${FS:-ext4 xfs btrfs}; do
    if [ "$kind" = ext4 ] && ! may_resize; then
        echo "SKIP: grow: ext4, which may not be made larger while it is mounted here"
    elif command -v "mkfs.$kind" >/dev/null && grep -qw "$kind" /proc/filesystems; then
        kinds+=("$kind")
    else
        echo "SKIP: grow: $kind, which is not here"
    fi
done
[ "${#kinds[@]}" -gt 0 ] || exit 0

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-grow.XXXXXX")
mkdir "$dir/mnt" "$dir/past"
volume=$dir/volume load='' current=''
end() {
    local status=$?
    set +e
    [ -z "$load" ] || kill -KILL "$load" 2>/dev/null
    [ "$status" -eq 0 ] || { echo "grow: FAILED${current:+ in $current, seed $SEED}"; tail -n 20 "$dir/out" "$dir/grow"; }
    for each in "$volume@before" "$volume" "$dir"/ext4 "$dir"/xfs "$dir"/btrfs; do timeout 30 "$VELLUM" detach "$each" >/dev/null 2>&1; done
    rm -rf --one-file-system "$dir"
}
trap end EXIT
trap 'exit 130' INT TERM
v() { timeout 120 "$VELLUM" "$@" >"$dir/out" 2>&1; }
wrong() {
    echo "grow: $*"
    exit 1
}
server() { "$VELLUM" list --json | jq -r --arg path "$volume" '.[] | select(.path == $path) | .pid'; }
size() { "$VELLUM" info "$volume" --json | jq .size; }
file_system() { stat -f -c '%b %S' "$dir/mnt" | { read -r blocks bytes; echo $((blocks * bytes)); }; }
now() { date +%s%N; }
bytes() { numfmt --from=iec "$1"; }
holds() { python3 tests/chain/reader.py "$1" "$2" >"$dir/out" || exit 1; }
# As a user runs it; it fails if its server was killed.
grow() { timeout 120 "$VELLUM" grow "$volume" --size "$TO" --fs >"$dir/grow" 2>&1; }
write() {
    rm -f "$dir/killed"
    python3 tests/chain/writer.py "$dir/mnt" "$dir/acknowledged" "$1" 2>/dev/null &
    load=$!
}

# The start of each life: files, a snapshot of them, and some changes since.
for kind in "${kinds[@]}"; do
    current="the beginning of $kind"
    volume=$dir/$kind
    "$VELLUM" create "$volume" --size "$FROM" >/dev/null
    if [ "$kind" = ext4 ]; then
        v attach "$volume" --via fuse --mkfs --mount "$dir/mnt"
    else
        v attach "$volume" --via fuse
        "mkfs.$kind" -q -f "$(cat "$dir/out")"
        v detach "$volume"
        v attach "$volume" --via fuse --mount "$dir/mnt"
    fi
    : >"$dir/acknowledged"
    write 0
    sleep 2
    kill -KILL "$load"
    wait "$load" 2>/dev/null || true
    load=''
    # The snapshot is read through a read-only device, and btrfs needs writes to replay the log of its fsyncs.
    [ "$kind" != btrfs ] || timeout 60 sync -f "$dir/mnt"
    v snapshot "$volume" before
    cp "$dir/acknowledged" "$dir/$kind.before"
    # The last name may be behind the file that it was removed for.
    for name in $(tail -n 40 "$dir/acknowledged" | grep -v '^-' | head -n 20); do
        [ ! -e "$dir/mnt/$name" ] || { echo "-$name" >>"$dir/acknowledged"; rm "$dir/mnt/$name"; }
    done
    v detach "$volume"
    cp "$dir/acknowledged" "$dir/$kind.files"
done

# When the kill happened: before the volume had grown, before its file system had, or after both.
early=0 between=0 late=0 took=0
for ((life = 0; life <= LIVES; life++)); do
    kind=${kinds[life % ${#kinds[@]}]}
    current="life $life, $kind"
    volume=$dir/volume
    cp --sparse=always "$dir/$kind" "$volume"
    cp "$dir/$kind.files" "$dir/acknowledged"
    v attach "$volume" --via fuse --mount "$dir/mnt"
    pid=$(server)
    write $((life + 1))
    sleep "0.$((RANDOM % 9 + 1))"
    began=$(now)
    if [ "$life" -eq 0 ]; then
        # Without a kill, to measure how long it takes.
        grow
        took=$((($(now) - began) / 1000))
        [ "$(size)" -eq "$(bytes "$TO")" ] || wrong "it is $(size) bytes large"
        kill -KILL "$load"
    else
        "$VELLUM" grow "$volume" --size "$TO" --fs >"$dir/grow" 2>&1 &
        growing=$!
        # More often at its beginning, where the volume grows, than later, where its file system does.
        moment=$((took * (RANDOM % 1400) / 1000 * (RANDOM % 1000) / 1000))
        sleep "$((moment / 1000000)).$(printf %06d $((moment % 1000000)))"
        : >"$dir/killed"
        [ $((life % 3)) -ne 0 ] || kill -KILL "$growing" 2>/dev/null || true
        kill -KILL "$pid"
        wait "$growing" 2>/dev/null || true
        sleep 0.2
        kill -KILL "$load" 2>/dev/null || true
    fi
    wait "$load" 2>/dev/null || true
    load=''
    v detach "$volume"
    v check "$volume"
    grown=$(size)
    v attach "$volume" --via fuse --mount "$dir/mnt"
    had=$(file_system)
    holds "$dir/mnt" "$dir/acknowledged"
    if [ "$grown" -lt "$(bytes "$TO")" ]; then
        early=$((early + 1))
    elif [ "$had" -lt $(($(bytes "$TO") / 10 * 9)) ]; then
        between=$((between + 1))
    else
        late=$((late + 1))
    fi
    # The same command completes the rest, and does no harm if nothing is left.
    grow
    [ "$(size)" -eq "$(bytes "$TO")" ] || wrong "it is $(size) bytes large"
    [ "$(file_system)" -gt $(($(bytes "$TO") / 10 * 9)) ] || wrong "its file system has $(file_system) bytes"
    holds "$dir/mnt" "$dir/acknowledged"
    past=()
    if [ "$kind" = xfs ]; then
        # XFS identifies each file system by its UUID, and these two have the same.
        past=(--options nouuid)
        # Copies of its superblock are written last. If that was interrupted, xfs_growfs writes them at the next growth, and until then
        # xfs_repair would use the old ones.
        v grow "$volume" --size $(($(bytes "$TO") + (64 << 20))) --fs
    fi
    # btrfs mounts only one of two devices with the same UUID at a time.
    [ "$kind" != btrfs ] || v detach "$volume"
    v attach "$volume@before" --via fuse --mount "$dir/past" "${past[@]}"
    holds "$dir/past" "$dir/$kind.before"
    v detach "$volume@before"
    [ "$kind" = btrfs ] || v detach "$volume"
    v check "$volume"
    v attach "$volume" --via fuse
    device=$(cat "$dir/out")
    case $kind in
        ext4) e2fsck -fn "$device" >"$dir/out" 2>&1 ;;
        xfs) xfs_repair -n "$device" >"$dir/out" 2>&1 ;;
        btrfs) btrfs check --readonly "$device" >"$dir/out" 2>&1 ;;
    esac
    v detach "$volume"
done
echo "grow: passed, $LIVES lives killed of ${kinds[*]} from $FROM to $TO, a growth takes $((took / 1000)) ms under load; when they ended," \
    "$early had not grown, $between had and their file system had not, $((late - 1)) had with it"
