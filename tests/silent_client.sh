#!/usr/bin/env bash
# A client that sends nothing more before it has an answer: nbdfuse holds its connection while it waits for one. Under an asynchronous
# journal the commit block must be answered before the client sends what it commits; otherwise each side waits for the other, and the
# journal aborts. A real ext4 on a loop device on nbdfuse on NBD, with commits of many MiB; needs root.
name=silent_client
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 e2fsck nbdfuse nbdinfo python3
ROUNDS=${ROUNDS:-5}

"$VELLUM" create "$dir/volume" --size 2G >"$dir/log"
"$VELLUM" serve "v=$dir/volume" --socket "$dir/socket" >"$dir/log" 2>&1 &
server=$!
uri="nbd+unix:///v?socket=$dir/socket"
# Waits until a command succeeds.
until_it_does() { # COMMAND...
    local tries
    for ((tries = 0; tries < 3000; tries++)); do
        ! "$@" >"$dir/out" 2>&1 || return 0
        sleep 0.02
    done
    echo "not in time: $*" >>"$dir/out"
    exit 1
}
until_it_does nbdinfo --size "$uri"
nbdfuse "$dir/fuse/v" "$uri" &
load=$!
until_it_does test -e "$dir/fuse/v"
loop=$(losetup --find --show --direct-io=on "$dir/fuse/v")
mkfs.ext4 -q "$loop"
mount -o data=journal,journal_async_commit "$loop" "$dir/mnt"
waited() { "$VELLUM" stats --json "$dir/volume" | jq '[.. | objects | .commits? // empty | .waited? // empty] | add'; }
# It depends on timing whether a commit block comes first: until one did, there are more rounds.
for ((round = 0; round < ROUNDS || (round < 30 && $(waited) == 0); round++)); do
    current="round $round"
    [ "$round" -lt "$ROUNDS" ] || rm -r "$dir/mnt/$((round - ROUNDS))"
    # Many files of all sizes: the kernel merges descriptors, copies and commit blocks into requests as it likes.
    python3 - "$dir/mnt/$round" <<'PY'
import hashlib, os, sys
os.mkdir(sys.argv[1])
for n in range(12000):
    content = hashlib.sha256(b"%d" % n).digest() * (1 + n * 97 % 300)
    with open(f"{sys.argv[1]}/{n}", "wb") as file:
        file.write(content)
if int(sys.argv[1][-1]) % 2: os.sync()
PY
done
waited=$(waited)
umount "$dir/mnt"
e2fsck -fn "$loop" >"$dir/out" 2>&1
finish
if grep "commit block" "$dir/log"; then
    exit 1
fi
echo "$name: $waited commit blocks came before what they commit"
[ "$waited" -gt 0 ]
