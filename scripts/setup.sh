#!/usr/bin/env bash
# Installs what the demo, the tests and the benchmarks run: scripts/setup.sh [build|demo|test|bench|journal|layouts|file-systems|applications|guest]...
# Debian and its kin, through apt, as root or by sudo. Elsewhere, and without either, it says what is
# missing. Rust is the one thing that it does not install.
set -euo pipefail

declare -A package=(
    [cc]=build-essential [git]=git [mkfs.ext4]=e2fsprogs [e2fsck]=e2fsprogs [losetup]=mount [sfdisk]=fdisk
    [fusermount3]=fuse3 [sqlite3]=sqlite3 [jq]=jq
    [nbdinfo]=libnbd-bin [nbdcopy]=libnbd-bin [qemu-io]=qemu-utils [qemu-img]=qemu-utils
    [nbdkit]=nbdkit [nbdfuse]=libnbd-bin [fio]=fio [python3]=python3
    [db_bench]=rocksdb-tools [pg_createcluster]=postgresql
    [chromium]=chromium
    [etcd]=etcd-server [redis-server]=redis-server [influxd]=influxdb [skopeo]=skopeo [umoci]=umoci
    [mariadbd]=mariadb-server [sysbench]=sysbench
    [mkfs.xfs]=xfsprogs [mkfs.btrfs]=btrfs-progs
    [qemu-system-x86_64]=qemu-system-x86 [cpio]=cpio [depmod]=kmod [xz]=xz-utils
)
declare -A needs=(
    [build]="cc git"
    [demo]="cc git mkfs.ext4 e2fsck losetup fusermount3 sqlite3"
    [test]="cc git mkfs.ext4 e2fsck losetup fusermount3 sqlite3 sfdisk nbdinfo nbdcopy qemu-io python3 jq chromium"
    [bench]="cc git mkfs.ext4 losetup fusermount3 nbdinfo nbdkit nbdfuse qemu-io fio jq"
    [journal]="cc git mkfs.ext4 e2fsck losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 db_bench pg_createcluster"
    [layouts]="cc git mkfs.ext4 e2fsck losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 chromium"
    [file-systems]="cc git mkfs.xfs mkfs.btrfs losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 pg_createcluster"
    [applications]="cc git mkfs.ext4 e2fsck mkfs.xfs mkfs.btrfs losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 sqlite3
        etcd redis-server mariadbd sysbench pg_createcluster db_bench influxd skopeo umoci"
    [guest]="qemu-system-x86_64 cpio depmod xz mkfs.ext4 e2fsck losetup"
)

if ! command -v cargo >/dev/null; then
    cat >&2 <<'TEXT'
Rust is missing: there is no `cargo` in PATH, and it is the one thing that this does not install.
Get it from https://rustup.rs (1.95 or newer), then run the same command again.
TEXT
    exit 1
fi

# Tools of the system live in sbin, which not every user has in PATH.
export PATH="$PATH:/usr/sbin:/sbin"
missing=()
for set in "${@:-test}"; do
    [ -n "${needs[$set]:-}" ] || { echo "setup.sh: no set '$set': one of ${!needs[*]}" >&2; exit 2; }
    for tool in ${needs[$set]}; do
        command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
    done
done
[ "${#missing[@]}" -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
    sudo -n true 2>/dev/null || as_root=()
fi
if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && [ "${#as_root[@]}" -eq 0 ]; }; then
    echo "Missing, and not installable from here (no apt, or neither root nor password-less sudo):" >&2
    echo "    ${missing[*]}" >&2
    echo "On Debian or Ubuntu:  sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "Installing: ${missing[*]}"
servers=()
for name in etcd-server influxdb mariadb-server postgresql redis-server; do
    [[ " ${missing[*]} " != *" $name "* ]] || servers+=("$name")
done
[ "${#servers[@]}" -eq 0 ] ||
    echo "Of these, ${servers[*]} are servers: Debian starts them, now and at each boot. 'systemctl disable --now NAME' ends that."
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install=("${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}")
if ! "${install[@]}" >"$log" 2>&1; then
    # Lists may be missing or old.
    if ! { "${as_root[@]}" apt-get update && "${install[@]}"; } >"$log" 2>&1; then
        tail -20 "$log" >&2
        echo "apt could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
