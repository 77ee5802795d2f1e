#!/usr/bin/env bash
# Installs what the demo, the tests and the benchmarks run: scripts/setup.sh [build|demo|test|cuts|bench|journal|layouts|file-systems|applications|guest|system|package|rpm|static|container|aarch64|scrape|watched|python|coverage|instructions]...
# Debian and its derivatives, through apt, as root or with sudo. Elsewhere, or without either, it prints what is missing. It asks before it
# installs Rust if the distribution has none, because the user may manage Rust otherwise.
set -euo pipefail

declare -A package=(
    [cc]=build-essential [git]=git [mkfs.ext4]=e2fsprogs [e2fsck]=e2fsprogs [losetup]=mount [sfdisk]=fdisk
    [fusermount3]=fuse3 [sqlite3]=sqlite3 [jq]=jq
    [nbdinfo]=libnbd-bin [nbdcopy]=libnbd-bin [qemu-io]=qemu-utils [qemu-img]=qemu-utils
    [nbdkit]=nbdkit [nbdfuse]=libnbd-bin [fio]=fio [python3]=python3 [ensurepip]=python3-venv
    [db_bench]=rocksdb-tools [pg_createcluster]=postgresql [plyvel]=python3-plyvel
    [chromium]=chromium
    [etcd]=etcd-server [redis-server]=redis-server [influxd]=influxdb [skopeo]=skopeo [umoci]=umoci
    [mariadbd]=mariadb-server [sysbench]=sysbench
    [mkfs.xfs]=xfsprogs [mkfs.btrfs]=btrfs-progs
    [qemu-system-x86_64]=qemu-system-x86 [cpio]=cpio [depmod]=kmod [xz]=xz-utils [dmsetup]=dmsetup
    [mmdebstrap]=mmdebstrap [lintian]=lintian [rpmbuild]=rpm [dpkg-shlibdeps]=dpkg-dev
    [musl-gcc]=musl-tools [buildah]=buildah [podman]=podman [runc]=runc [llvm-cov-22]=llvm-22 [prometheus]=prometheus [curl]=curl [valgrind]=valgrind
)
declare -A needs=(
    [build]="cc git"
    [demo]="cc git mkfs.ext4 e2fsck losetup fusermount3 sqlite3"
    [test]="cc git mkfs.ext4 e2fsck mkfs.xfs mkfs.btrfs losetup fusermount3 sqlite3 sfdisk nbdinfo nbdcopy nbdfuse qemu-io python3 jq chromium"
    [cuts]="pg_createcluster plyvel"
    [bench]="cc git mkfs.ext4 losetup fusermount3 nbdinfo nbdkit nbdfuse qemu-io fio jq"
    [journal]="cc git mkfs.ext4 e2fsck losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 db_bench pg_createcluster"
    [layouts]="cc git mkfs.ext4 e2fsck losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 chromium"
    [file-systems]="cc git mkfs.xfs mkfs.btrfs losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 pg_createcluster"
    [applications]="cc git mkfs.ext4 e2fsck mkfs.xfs mkfs.btrfs losetup fusermount3 nbdinfo nbdkit nbdfuse jq python3 sqlite3
        etcd redis-server mariadbd sysbench pg_createcluster db_bench influxd skopeo umoci"
    [guest]="qemu-system-x86_64 cpio depmod xz mkfs.ext4 e2fsck losetup dmsetup"
    [system]="mmdebstrap dpkg-shlibdeps"
    [package]="lintian dpkg-shlibdeps"
    [rpm]="rpmbuild"
    [static]="musl-gcc"
    [aarch64]="mmdebstrap"
    [container]="buildah podman runc"
    [scrape]="prometheus curl jq fio fusermount3"
    [watched]="prometheus"
    [python]="cc git python3 ensurepip"
    # The version of the LLVM in rust-toolchain.toml's rustc.
    [coverage]="llvm-cov-22"
    [instructions]="cc valgrind"
)

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
    sudo -n true 2>/dev/null || as_root=()
fi
# True if packages can be installed here.
installs() { command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || [ "${#as_root[@]}" -gt 0 ]; }; }

# Rust, if there is none: the distribution's rustup, or the official installer, if the user agrees to that. The toolchain is given by
# rust-toolchain.toml, and cargo installs it on its first call.
# Debian 12 knows the name rustup without having such a package: `apt-cache show` succeeds there.
has_rustup() { LC_ALL=C apt-cache policy rustup 2>/dev/null | grep -q '^ *Candidate: [^(]'; }
rust() {
    local answer=''
    if installs && has_rustup; then
        echo 'Installing: rustup (cargo is missing)'
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends rustup >/dev/null && return
    fi
    if [ -z "${CI:-}" ] && [ -t 0 ] && { command -v curl >/dev/null || installs; }; then
        read -r -p "Rust is missing. Install it for this user, into ~/.cargo and ~/.rustup, by https://sh.rustup.rs? [y/N] " answer
        case $answer in
            [yY]*)
                command -v curl >/dev/null ||
                    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends curl ca-certificates >/dev/null
                curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal && return
                ;;
        esac
    fi
    cat >&2 <<'TEXT'
Rust is missing: there is no `cargo` in PATH or ~/.cargo/bin. Get it, then run the same command again:
    sudo apt-get install rustup                                        (Debian 13, Ubuntu 24.04 and newer)
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh     (elsewhere)
TEXT
    exit 1
}
export PATH="$PATH:${HOME:-/root}/.cargo/bin"
command -v cargo >/dev/null || rust

# System tools are in sbin, which is not in every user's PATH.
export PATH="$PATH:/usr/sbin:/sbin"
# Names that are not commands are Python modules.
has() {
    case $1 in
        ensurepip) python3 -c "import $1" 2>/dev/null ;;
        # Debian installs it for its own Python only.
        plyvel) /usr/bin/python3 -c "import $1" 2>/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}
missing=()
for set in "${@:-test}"; do
    [ -n "${needs[$set]:-}" ] || { echo "setup.sh: no set '$set': one of ${!needs[*]}" >&2; exit 2; }
    for tool in ${needs[$set]}; do
        has "$tool" || missing+=("${package[$tool]}")
    done
done
[ "${#missing[@]}" -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if ! installs; then
    echo "Missing, and not installable from here (no apt, or neither root nor password-less sudo):" >&2
    echo "    ${missing[*]}" >&2
    echo "On Debian or Ubuntu:  sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "Installing: ${missing[*]}"
servers=()
for name in etcd-server influxdb mariadb-server postgresql prometheus redis-server; do
    [[ " ${missing[*]} " != *" $name "* ]] || servers+=("$name")
done
log=$(mktemp)
policy=''
end() {
    rm -f "$log"
    [ -z "$policy" ] || "${as_root[@]}" rm -f "$policy"
}
trap end EXIT
if [ "${#servers[@]}" -gt 0 ]; then
    echo "Servers among them: ${servers[*]}. They are not started now. Debian starts them at the next boot; 'systemctl disable NAME' ends that."
    # Debian runs this program to decide whether a service may be started. 101 means no.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >"$log"
        "${as_root[@]}" install -m 755 "$log" "$policy"
    fi
fi
export DEBIAN_FRONTEND=noninteractive
install=("${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}")
if ! "${install[@]}" >"$log" 2>&1; then
    # Package lists may be missing or old.
    if ! { "${as_root[@]}" apt-get update && "${install[@]}"; } >"$log" 2>&1; then
        tail -20 "$log" >&2
        echo "apt could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
