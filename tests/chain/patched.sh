# shellcheck shell=bash disable=SC2154
# For tests that try what the developers' documents say (docs/internals/extending.md): adds something made up to a copy of the tree, by a
# patch that touches a bounded number of files. Sourced with $name, the test's name.
fail() {
    echo "$name: FAILED: $*"
    exit 1
}
skip() {
    echo "SKIP: $name: it needs $*"
    exit 0
}
for tool in git cargo; do command -v "$tool" >/dev/null || skip "$tool"; done
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip 'a clone, to know which files are of the tree'

# Counts the files of a patch into $count, and goes to a copy of the tree with the patch.
patched() { # PATCH MOST WHAT
    local patch files
    patch=$(realpath "$1")
    files=$(git apply --numstat "$patch" | cut -f3)
    count=$(wc -l <<<"$files")
    [ "$count" -le "$2" ] || fail "$3 takes $count files, and at most $2 are allowed:"$'\n'"$files"

    # Below the build's own directory, so that what others have built is used; at the same place each time, so that this takes its room
    # once.
    mkdir -p "${CARGO_TARGET_DIR:-target}"
    CARGO_TARGET_DIR=$(realpath "${CARGO_TARGET_DIR:-target}")
    export CARGO_TARGET_DIR CARGO_INCREMENTAL=0
    tree=$CARGO_TARGET_DIR/patched
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
    git apply -C1 "$patch" || fail "the patch no longer fits the code. In a clean clone:
  git apply -C1 --reject ${patch#"$OLDPWD/"}    # and put in by hand what the .rej files hold
  git add --intent-to-add . && git diff -U1 >/tmp/new.patch
Then /tmp/new.patch takes the place of the old one. If it needs more than $2 files, mend the code instead."
}

# Runs tests of a crate. A filter that fits no test would pass.
runs() { # CRATE FILTER
    cargo test --quiet --locked -p "$1" --lib "$2" 2>&1 | tee "$log"
    grep -qE '^test result: ok\. [1-9]' "$log"
}

# Lints a crate, or compiles it where there is no linter.
lints() { # CRATE
    local lint=(clippy --quiet --locked -p "$1" -- -D warnings)
    cargo clippy --version >/dev/null 2>&1 || lint=(check --quiet --locked -p "$1")
    cargo "${lint[@]}"
}
