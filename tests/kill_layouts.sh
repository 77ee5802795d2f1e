#!/usr/bin/env bash
# kill -9 of the server under a mounted ext4, on the layouts with tables in place. LIVES=n; needs root.
set -euo pipefail
for layout in ordered shadow; do
    LIVES=${LIVES:-3} LAYOUT=$layout "$(dirname "$0")/kill_under_ext4.sh"
done
