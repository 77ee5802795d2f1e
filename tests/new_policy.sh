#!/usr/bin/env bash
# A policy that users can choose, in a volume and in the lab, takes at most 8 files, its unit test included. This adds one: the made-up
# `last` (tests/policy/last.patch), which proposes the block that was written last. It counts the files of the patch, applies it to a copy
# of the tree, runs the policy's tests (its own, and a load in the lab under `vellum:last`, where every read is compared), and lints what a
# volume is served with. docs/internals/extending.md says what each file is for. Some minutes, if the tree itself is built already.
# PATCH=FILE tries another one.
set -euo pipefail
cd "$(dirname "$0")/.."
most=8
fail() {
    echo "new_policy: FAILED: $*"
    exit 1
}
skip() {
    echo "SKIP: new_policy: it needs $*"
    exit 0
}
for tool in git cargo; do command -v "$tool" >/dev/null || skip "$tool"; done
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip 'a clone, to know which files are of the tree'
PATCH=$(realpath "${PATCH:-tests/policy/last.patch}")

files=$(git apply --numstat "$PATCH" | cut -f3)
count=$(wc -l <<<"$files")
[ "$count" -le "$most" ] || fail "a policy takes $count files, and at most $most are allowed:"$'\n'"$files"

# Below the build's own directory, so that what others have built is used; at the same place each time, so that this takes its room once.
mkdir -p "${CARGO_TARGET_DIR:-target}"
CARGO_TARGET_DIR=$(realpath "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR CARGO_INCREMENTAL=0
tree=$CARGO_TARGET_DIR/new-policy
log=$(mktemp)
trap 'rm -rf --one-file-system "$tree" "$log"' EXIT
trap 'exit 130' INT TERM
rm -rf --one-file-system "$tree"
mkdir "$tree"
git ls-files -z --cached --others --exclude-standard |
    tar --null --ignore-failed-read -T - -c | tar -x -C "$tree"
cd "$tree"
# Its own repository: in a folder of another one, `git apply` leaves out what is not below it.
git init -q .
git apply -C1 "$PATCH" || fail "the patch no longer fits the code. In a clean clone:
  git apply -C1 --reject ${PATCH#"$OLDPWD/"}    # and put in by hand what the .rej files hold
  git add --intent-to-add crates && git diff -U1 crates >/tmp/new.patch
Then /tmp/new.patch takes the place of the old one. If it needs more than $most files, mend the code instead."

# A filter that fits no test would pass.
runs() { # CRATE FILTER
    cargo test --quiet --locked -p "$1" --lib "$2" 2>&1 | tee "$log"
    grep -qE '^test result: ok\. [1-9]' "$log"
}
runs vellum-core policy::last || fail 'its own test'
runs vellum-lab policy::engine || fail 'the lab'

lint=(clippy --quiet --locked -p vellum-cli -- -D warnings)
cargo clippy --version >/dev/null 2>&1 || lint=(check --quiet --locked -p vellum-cli)
cargo "${lint[@]}" || fail 'a volume cannot be served with it'
echo "new_policy: a ninth policy takes $count files, and works"
