#!/usr/bin/env bash
# Runs a script in a guest of Debian's kernel (QEMU, no KVM needed), with `vellum` in its path and a scratch disk at /dev/vda: run.sh SCRIPT
# [ARG...]. Prints its output and ends with its exit code; 77 if no guest is possible here. PATIENCE: seconds; DISK: the scratch disk's
# size; CPUS; VELLUM: the binary; NVME: the size of an NVMe drive, /dev/nvme0n1; TOOLS: host programs to copy into it; FILES: a directory to
# copy to its root; MEMORY: MiB.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
export PATH="$PATH:/usr/sbin:/sbin"
PATIENCE=${PATIENCE:-300}
DISK=${DISK:-512M}
CPUS=${CPUS:-1}
VELLUM=$(realpath "${VELLUM:-${CARGO_TARGET_DIR:-target}/release/vellum}")

command -v qemu-system-x86_64 >/dev/null || {
    echo "SKIP: no guest: qemu-system-x86_64 is missing (apt-get install qemu-system-x86)"
    exit 77
}
guest=$("$here/build.sh") || exit $?

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/vellum-guest.XXXXXX")
qemu=''
cleanup() {
    [ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir -p "$dir/files/test" "$dir/files/sbin"
cp "$1" "$dir/files/test/run.sh"
shift
echo "$*" >"$dir/files/test/args"
strip -o "$dir/files/sbin/vellum" "$VELLUM"
"$here/libraries.sh" "$dir/files" "$VELLUM"
for tool in ${TOOLS:-}; do
    program=$(command -v "$tool") || { echo "guest: $tool is not installed here"; exit 1; }
    cp -L "$program" "$dir/files/sbin/"
    "$here/libraries.sh" "$dir/files" "$program"
done
[ -z "${FILES:-}" ] || cp -r "$FILES/." "$dir/files/"
# The kernel unpacks archives one after the other: the tools, then what differs between runs.
(cat "$guest/base.cpio" && cd "$dir/files" && find . | cpio -o -H newc --quiet) >"$dir/initramfs"
truncate -s "$DISK" "$dir/disk"
nvme=()
if [ -n "${NVME:-}" ]; then
    truncate -s "$NVME" "$dir/nvme"
    nvme=(-drive "file=$dir/nvme,if=none,id=nvme,format=raw" -device nvme,serial=vellum,drive=nvme)
fi

qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m "${MEMORY:-512}" -smp "$CPUS" -nographic -no-reboot -nodefaults \
    -serial "file:$dir/console" -kernel "$guest/vmlinuz" -initrd "$dir/initramfs" \
    -append "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic no_timer_check rdinit=/init" \
    "${nvme[@]}" -drive "file=$dir/disk,if=virtio,format=raw,cache=writeback,discard=unmap" &
qemu=$!
for ((seconds = 0; seconds < PATIENCE * 10; seconds++)); do
    kill -0 "$qemu" 2>/dev/null || break
    sleep 0.1
done
why='it ended without an exit code'
if kill -0 "$qemu" 2>/dev/null; then
    why="out of patience after $PATIENCE s"
fi
kill "$qemu" 2>/dev/null || true
wait "$qemu" 2>/dev/null || true
qemu=''
# Without the terminal's carriage returns; the output of firmware and loader precedes "begin".
tr -d '\r' <"$dir/console" >"$dir/text"
code=$(sed -n 's/^guest: exit \([0-9]*\)$/\1/p' "$dir/text" | tail -1)
if [ -n "$code" ]; then
    sed -e '1,/guest: begin$/d' -e '/^guest: exit [0-9]*$/,$d' "$dir/text"
    exit "$code"
fi
cat "$dir/text"
echo "guest: $why"
exit 1
