#!/usr/bin/env bash
# A write of the map table that the medium confirmed and lost: each block of the table, and the whole table, is restored to its state before
# the last life, on each layout of tables. While the twins of these blocks are there, reads return what was written; without them they
# return what was written, or an error, and never anything else.
# Needs root.
name=lost_table
# shellcheck source=tests/chain/served.sh
. "$(dirname "$0")/chain/served.sh"
needs cmp

put_back() { # FIRST COUNT
    cp "$dir/new" "$dir/volume"
    put_back_too "$1" "$2"
}

put_back_too() { # FIRST COUNT
    dd if="$dir/old" of="$dir/volume" bs=4096 skip="$1" seek="$1" count="$2" conv=notrunc status=none
}

# Checks that a server serves the volume and reads return what was written, or that it reports an error.
right_or_refused() { # WHAT
    local told=sound
    "$VELLUM" check "$dir/volume" >"$dir/out" 2>&1 || told=damaged
    "$VELLUM" serve "v=$dir/volume" --fuse "$dir/fuse" >"$dir/log" 2>&1 &
    server=$!
    while [ ! -e "$dir/fuse/v" ]; do
        if ! kill -0 "$server" 2>/dev/null; then
            wait "$server" 2>/dev/null || true
            server=''
            [ $told = damaged ] || current="$1: refused, and check calls it sound"
            [ $told = damaged ]
            refused=$((refused + 1))
            return
        fi
        sleep 0.02
    done
    if head -c 200000 "$dir/fuse/v" >"$dir/read" 2>"$dir/out"; then
        current="$1: other data, and no error"
        cmp "$dir/read" "$dir/data"
        right=$((right + 1))
    else
        refused=$((refused + 1))
    fi
    finish
}

for layout in ordered shadow; do
    right=0 refused=0
    rm -f "$dir/volume"
    "$VELLUM" create "$dir/volume" --size 64M --layout $layout >/dev/null
    cp "$dir/volume" "$dir/old"
    head -c 200000 /dev/urandom >"$dir/data"
    start serve "v=$dir/volume"
    dd if="$dir/data" of="$dir/fuse/v" conv=notrunc,fsync status=none
    finish
    cp "$dir/volume" "$dir/new"
    at=$("$VELLUM" dump "$dir/volume" superblock | sed -n 's/^map table.* \([0-9]*\) blocks.*from block \([0-9]*\)$/\1 \2/p')
    blocks=${at% *} first=${at#* }
    twins=$("$VELLUM" dump "$dir/volume" superblock | sed -n 's/^twins of the map.* from block \([0-9]*\)$/\1/p')
    [ $layout != shadow ] || blocks=$((2 * blocks))
    for at in 0 1 2 "0 2" "0 $blocks"; do
        # shellcheck disable=SC2086
        set -- $at 1
        put_back $((first + $1)) "$2"
        before=$refused
        right_or_refused "$layout, $2 block(s) of the map table from $1 on"
        current="$layout: its twins do not tell what $2 block(s) of the map table from $1 on said"
        [ "$refused" = "$before" ]
        put_back $((first + $1)) "$2"
        put_back_too $((twins + $1)) "$2"
        right_or_refused "$layout, both copies of $2 block(s) of the map table from $1 on"
    done
    echo "lost_table: $layout: right $right times, refused $refused times"
    current="$layout: nothing was noticed"
    [ "$refused" -gt 0 ]
    current=''
done
