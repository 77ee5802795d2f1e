#!/usr/bin/env python3
"""Work on a git repository, this project's: it is cloned, older versions are checked out, changes are committed, and all is packed again."""

import os
import random
import subprocess

from common import SEED, Skip, Text, main, tool

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# The same history for every version of this program, if it is there.
HEAD = "e09ca5a"
CHECKOUTS = 8
COMMITS = 20


def git(*arguments, inside=None, **more):
    # No user's configuration: names, hooks, signing, and the owner of the directory.
    environment = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    for who in ("AUTHOR", "COMMITTER"):
        environment[f"GIT_{who}_NAME"] = "workload"
        environment[f"GIT_{who}_EMAIL"] = "workload@localhost"
        environment[f"GIT_{who}_DATE"] = "2026-01-01T00:00:00Z"
    command = [tool("git"), "-c", "gc.auto=0", "-c", "safe.directory=*", "-c", "protocol.file.allow=always", "-c", "pack.threads=1"]
    done = subprocess.run([*command, *arguments], cwd=inside, env=environment, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def make(job, path):
    if not os.path.exists(os.path.join(REPOSITORY, ".git")):
        raise Skip("this is no clone of the repository")
    git("clone", "-q", "--bare", "--no-local", f"file://{os.path.realpath(REPOSITORY)}", path)
    known = git("rev-parse", "--verify", "--quiet", f"{HEAD}^{{commit}}", inside=path).strip() if has(path) else git("rev-parse", "HEAD", inside=path).strip()
    for name in git("for-each-ref", "--format=%(refname)", inside=path).split():
        git("update-ref", "-d", name, inside=path)
    git("update-ref", "refs/heads/main", known, inside=path)
    git("symbolic-ref", "HEAD", "refs/heads/main", inside=path)
    git("gc", "-q", "--prune=now", inside=path)


def has(path):
    listed = git("rev-list", "--all", "--abbrev-commit", inside=path).split()
    return any(commit.startswith(HEAD) for commit in listed)


def source(job):
    return job.source("history", lambda path: make(job, path))


def run(job):
    clone = job.path("clone")
    git("clone", "-q", f"file://{source(job)}", clone)
    history = git("rev-list", "--first-parent", "HEAD", inside=clone).split()
    checkouts = job.scaled(CHECKOUTS, least=1)
    for n in range(1, checkouts + 1):
        git("checkout", "-q", history[n * (len(history) - 1) // checkouts // 2], inside=clone)
    git("checkout", "-q", "main", inside=clone)
    files = git("ls-files", "*.rs", inside=clone).split()
    numbers, text = random.Random(SEED), Text(SEED)
    commits = job.scaled(COMMITS, least=1)
    for n in range(commits):
        for name in numbers.sample(files, min(len(files), 5)):
            with open(f"{clone}/{name}", "ab") as file:
                file.write(b"// " + text.take(numbers.randrange(100, 2000)).replace(b"\n", b"\n// ") + b"\n")
        git("commit", "-q", "-a", "-m", f"change {n}", inside=clone)
    git("repack", "-a", "-d", "-q", inside=clone)
    git("fsck", "--full", "--no-progress", inside=clone)
    return checkouts + commits


main(run, source)
