#!/usr/bin/env bash
# As tests/root.sh, by the package's module for dracut: the system is cut off once while it writes, boots again, and is shut down.
set -euo pipefail
INITRAMFS=dracut exec "$(dirname "$0")/root.sh"
