#!/usr/bin/env bash
# A policy that users can choose, in a volume and in the lab, takes at most 8 files, its unit test included. This adds one: the made-up
# `last` (tests/policy/last.patch), which proposes the block that was written last. It counts the files of the patch, applies it to a copy
# of the tree, runs the policy's tests (its own, and a load in the lab under `vellum:last`, where every read is compared), and lints what a
# volume is served with. docs/internals/extending.md says what each file is for. Some minutes, if the tree itself is built already.
# PATCH=FILE tries another one.
set -euo pipefail
cd "$(dirname "$0")/.."
name=new_policy
. tests/chain/patched.sh
patched "${PATCH:-tests/policy/last.patch}" 8 'a policy'

runs vellum-core policy::last || fail 'its own test'
runs vellum-lab policy::engine || fail 'the lab'
lints vellum-cli || fail 'a volume cannot be served with it'
echo "new_policy: a ninth policy takes $count files, and works"
