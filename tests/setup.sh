#!/usr/bin/env bash
# A machine without Rust: scripts/setup.sh uses the distribution's rustup if there is one, otherwise asks once at a terminal, and prints
# instructions if there is no terminal. Package managers and the installer are stand-ins that record how they were called.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "setup: FAILED: $*"
    cat "$dir/out" "$dir/calls" 2>/dev/null || true
    exit 1
}
mkdir "$dir/bin" "$dir/user"
for tool in bash env id sed grep cat sort tail mktemp rm git cc tr; do
    ln -s "$(command -v "$tool")" "$dir/bin/$tool" 2>/dev/null || true
done
stand_in() { # NAME BODY
    printf '#!/bin/bash\necho "%s $*" >>%q\n%s\n' "$1" "$dir/calls" "$2" >"$dir/bin/$1"
    chmod +x "$dir/bin/$1"
}
setup() { # ENVIRONMENT...
    : >"$dir/calls"
    env -i PATH="$dir/bin" HOME="$dir/user" "$@" "$dir/bin/bash" scripts/setup.sh build >"$dir/out" 2>&1 </dev/null
}
# As root here, or as a user who may not install: then there is no sudo either.
! setup || fail 'it goes on without Rust'
grep -q 'curl --proto' "$dir/out" || fail 'it does not say where Rust is to be had'

if [ "$(id -u)" -eq 0 ]; then
    stand_in apt-get "exit 0"
    stand_in apt-cache "echo '  Candidate: (none)'"
    ! setup CI=1 || fail 'it goes on without Rust, in CI'
    [ "$(cat "$dir/calls")" = 'apt-cache policy rustup' ] || fail 'nobody was asked, and it has installed something'
    stand_in apt-cache "echo '  Candidate: 1.27.1-3'"
    setup || fail 'the rustup of the distribution is not taken'
    grep -q '^apt-get install.* rustup' "$dir/calls" || fail 'the rustup of the distribution is not installed'
    rm "$dir/bin/apt-get"
else
    echo 'SKIP: setup: the distribution'\''s rustup, which needs root'
fi

# At a terminal there is one question.
if command -v script >/dev/null; then
    ask() { # ANSWER
        : >"$dir/calls"
        echo "$1" | script -qec "env -i PATH=$dir/bin HOME=$dir/user $dir/bin/bash scripts/setup.sh build" /dev/null >"$dir/out" 2>&1
    }
    stand_in curl "echo 'echo installer \"\$@\" >>$dir/calls'"
    ln -sf "$(command -v sh)" "$dir/bin/sh"
    ! ask n || fail 'it goes on after a no'
    [ ! -s "$dir/calls" ] || fail 'it installs after a no'
    ask y || fail 'it does not go on after a yes'
    grep -q '^curl .*https://sh.rustup.rs' "$dir/calls" && grep -q '^installer -y' "$dir/calls" || fail 'a yes installs nothing'
else
    echo 'SKIP: setup: the question, which needs script(1)'
fi
mkdir -p "$dir/user/.cargo/bin"
ln -s /bin/true "$dir/user/.cargo/bin/cargo"
rm -f "$dir/bin/curl"
setup || fail 'cargo is not found in ~/.cargo/bin'
echo 'setup: passed'
