#!/usr/bin/env bash
# kill -9 of the server under a mounted ext4, life after life, two of three with blocks stored in parts of pages, and two of three with a
# volume that by itself replays what the journal has committed: what was fsynced is there, the volume's invariants hold, and e2fsck finds
# nothing. On the layout log the volume is told to grow at the end of each life, so the kill happens before, during or after that.
# LIVES=n for more lives, LAYOUT=ordered or shadow for tables in place; needs root.
name=kill_under_ext4
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs mkfs.ext4 e2fsck python3
LIVES=${LIVES:-5}
LAYOUT=${LAYOUT:-log}

life=0
compress=(zstd off lz4)
delta=(on off log)
[ "$LAYOUT" = log ] || compress=(off off off) delta=(off off off)
options=data=journal,journal_async_commit
[ "$LAYOUT" != ordered ] || options=data=journal
replay=(on on off)
[ "$LAYOUT" = log ] || replay=(off off off)
redeemed=0
grown=0

# Grows the volume, as long as its server runs.
grow() {
    [ "$LAYOUT" = log ] || return 0
    "$VELLUM" grow "$dir/volume" --size "$((512 + 16 * life))M" >"$dir/grow" 2>&1 &
    [ "$((RANDOM % 3))" -eq 0 ] || sleep "0.0$((RANDOM % 4))"
}

size() { "$VELLUM" info "$dir/volume" --json | jq .size; }

serve() {
    start serve "v=$dir/volume" --research "compress=${compress[life % 3]},delta=${delta[life % 3]},replay=${replay[life % 3]}"
    redeemed=$((redeemed + $(told .core.redeemed_blocks)))
}


: >"$dir/acknowledged"
"$VELLUM" create "$dir/volume" --size 512M --layout "$LAYOUT" >/dev/null
for ((life = 1; life <= LIVES; life++)); do
    serve
    [ "$life" -gt 1 ] || mkfs.ext4 -q -F -b 4096 "$loop"
    mount -o "$options" "$loop" "$dir/mnt"
    python3 tests/chain/reader.py "$dir/mnt" "$dir/acknowledged"
    python3 tests/chain/writer.py "$dir/mnt" "$dir/acknowledged" "$life" 2>"$dir/writer" &
    load=$!
    until grep -q "^$life-" "$dir/acknowledged"; do
        kill -0 "$load" 2>/dev/null || { cat "$dir/writer"; exit 1; }
        sleep 0.1
    done
    sleep "${SECONDS_A_LIFE:-$((1 + RANDOM % 2))}.$((RANDOM % 10))"
    before=$(size)
    grow
    crash
    let_go
    sound
    [ "$(size)" -eq "$before" ] || grown=$((grown + 1))
done
serve
mount -o "$options" "$loop" "$dir/mnt"
python3 tests/chain/reader.py "$dir/mnt" "$dir/acknowledged"
umount "$dir/mnt"
clean "$loop"
finish
sound
echo "kill_under_ext4: layout $LAYOUT, $LIVES lives, passed; $redeemed blocks were put home by recovery, $grown lives had grown when they ended"
