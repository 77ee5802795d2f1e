#!/usr/bin/env bash
# Like tests/root.sh, with the package's module for dracut: the power is cut once while it writes, then it boots again, and is shut down.
set -euo pipefail
INITRAMFS=dracut exec "$(dirname "$0")/root.sh"
