#!/usr/bin/env bash
# Copies the shared libraries of programs from the host into a root: libraries.sh ROOT PROGRAM...
set -euo pipefail
root=$1
shift
for program; do
    # Lines are `name => /path (address)`, or `/path (address)` for the loader.
    { ldd "$program" 2>/dev/null || true; } | { grep -oE '/[^ ]+' || true; } | while read -r library; do
        case $library in
            "$root"/*) ;;
            *) [ -e "$root$library" ] || install -D -m 755 "$(realpath "$library")" "$root$library" ;;
        esac
    done
done
