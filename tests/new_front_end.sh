#!/usr/bin/env bash
# A front end takes at most 5 files, its test and its fuzz target included. This adds one: the made-up `lines`
# (tests/front_end/lines.patch), which serves a volume in lines of text on a unix socket. It counts the files of the patch, applies it to a
# copy of the tree, runs the front end's tests, compiles its fuzz target, and serves a volume with it, confined as each server is.
# docs/internals/extending.md says what each file is for. Some minutes, if the tree itself is built already. PATCH=FILE tries another one.
set -euo pipefail
cd "$(dirname "$0")/.."
name=new_front_end
. tests/chain/patched.sh
command -v python3 >/dev/null || skip python3
patched "${PATCH:-tests/front_end/lines.patch}" 5 'a front end'

runs vellum-frontend lines || fail 'its own test'
cargo build --quiet --locked -p vellum-cli || fail 'a volume cannot be served with it'
cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --bin lines || fail 'its fuzz target'

vellum=$CARGO_TARGET_DIR/debug/vellum
at=$(mktemp -d)
server=
trap 'kill "$server" 2>/dev/null || true; rm -rf --one-file-system "$tree" "$log" "$at"' EXIT
"$vellum" create "$at/disk" --size 64M >/dev/null
serve() {
    : >"$at/out"
    "$vellum" serve "$at/disk" --lines "$at/lines" >"$at/out" 2>"$at/err" &
    server=$!
    for _ in $(seq 600); do grep -q ^ready: "$at/out" && return || sleep 0.1; done
    fail "no server: $(cat "$at/err")"
}
stop() {
    kill "$server"
    wait "$server" || fail "the server did not end well: $(cat "$at/err")"
    server=
    [ ! -e "$at/lines" ] || fail 'the socket is still there'
}
ask() { # LINE...
    python3 - "$at/lines" "$@" <<'END'
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
answers = line.makefile()
for request in sys.argv[2:]:
    line.sendall((request + "\n").encode())
    print(answers.readline(), end="")
END
}
serve
[ "$(ask 'write 4095 c0ffee' flush 'read 67108863 2')" = $'ok \nok \nerror out of range' ] || fail 'writing'
stop
serve
[ "$(ask 'read 4094 5')" = 'ok 00c0ffee00' ] || fail 'reading'
stop
echo "new_front_end: a fourth front end takes $count files, and works"
