#!/bin/bash -eu
cd "$SRC/vellum"
cargo fuzz build -O
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$name" "$OUT/"
    # The inputs that the repository keeps.
    seeds=$(mktemp -d)
    [ ! -e "fuzz/kept/$name.tar.gz" ] || tar -xzf "fuzz/kept/$name.tar.gz" -C "$seeds"
    [ -z "$(ls -A "$seeds")" ] || zip -jqr "$OUT/${name}_seed_corpus.zip" "$seeds"
done
