#!/usr/bin/env python3
"""A compile: cargo builds a crate of this repository and what it needs, sources and output on the file system."""

import os
import subprocess

from common import Skip, main, tool

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CRATE, SMALL_CRATE = "vellum-device", "vellum-core"


def cargo(job, *arguments):
    # No user's configuration except the registry, which is read and not written.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO_BUILD", "RUSTFLAGS", "RUSTC"))}
    environment["CARGO_TARGET_DIR"] = job.path("target")
    command = [tool("cargo"), *arguments, "--offline", "--locked"]
    return subprocess.run(command, cwd=job.path("sources"), env=environment, capture_output=True, text=True, check=False)


def prepare(job):
    os.makedirs(job.path("sources"))
    tracked = subprocess.run([tool("git"), "-c", "safe.directory=*", "archive", "HEAD"], cwd=REPOSITORY, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", job.path("sources")], input=tracked.stdout, check=True)
    if cargo(job, "tree", "-p", CRATE).returncode != 0:
        raise Skip("cargo has not all of the sources: build this repository once")


def run(job):
    done = cargo(job, "build", "-p", CRATE if job.scale >= 100 else SMALL_CRATE)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return sum(line.lstrip().startswith("Compiling") for line in done.stderr.splitlines())


main(run, prepare)
