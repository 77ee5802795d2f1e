#!/usr/bin/env python3
"""git clone, as from a server: the objects are unpacked, indexed, and checked out."""

import os
import subprocess

from common import Text, main, source_tree, tool, write_file

FILES = 3000
COMMITS = 8


def git(*arguments, inside=None):
    # No user's configuration: names, hooks, signing, and the owner of the directory.
    environment = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    for who in ("AUTHOR", "COMMITTER"):
        environment[f"GIT_{who}_NAME"] = "workload"
        environment[f"GIT_{who}_EMAIL"] = "workload@localhost"
        environment[f"GIT_{who}_DATE"] = "2026-01-01T00:00:00Z"
    command = [tool("git"), "-c", "gc.auto=0", "-c", "safe.directory=*", "-c", "protocol.file.allow=always"]
    subprocess.run([*command, *arguments], cwd=inside, env=environment, check=True)


def make(job, path):
    files = job.scaled(FILES, least=20)
    source_tree(path, files)
    git("init", "-q", "-b", "main", inside=path)
    text = Text(1)
    for commit in range(COMMITS):
        for n in range(commit, files, 40):
            changed = f"{path}/crate{n // 100}/src/module{n // 10 % 10}/file{n}.rs"
            write_file(changed, text.take(3000))
        git("add", "-A", inside=path)
        git("commit", "-q", "-m", f"change {commit}", inside=path)


def source(job):
    return job.source("repository", lambda path: make(job, path))


def run(job):
    git("clone", "-q", f"file://{source(job)}", job.path("clone"))
    return job.scaled(FILES, least=20)


main(run, source)
