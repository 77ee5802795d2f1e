#!/usr/bin/env bash
# The papers' evaluations, run again: docs/benchmarks/lab-papers.md is what `vellum lab paper all` prints, byte for byte. A few
# minutes on one core. A fast test checks that the page matches its record (lab-papers.json).
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lib/begin.sh

page=$(mktemp)
trap 'rm -f "$page"' EXIT
"$VELLUM" lab paper all >"$page"
if ! diff "$page" docs/benchmarks/lab-papers.md; then
    echo 'docs/benchmarks/lab-papers.md is not what the command prints. Render it again, and its record:'
    echo '  vellum lab paper all >docs/benchmarks/lab-papers.md'
    echo '  vellum lab paper all --json >docs/benchmarks/lab-papers.json'
    exit 1
fi
tail -1 "$page"
