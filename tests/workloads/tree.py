#!/usr/bin/env python3
"""The copy of a source tree."""

import subprocess

from common import main, source_tree

FILES = 5000


def source(job):
    return job.source("tree", lambda path: source_tree(path, job.scaled(FILES, least=20)))


def run(job):
    subprocess.run(["cp", "-a", source(job), job.path("tree")], check=True)
    return job.scaled(FILES, least=20)


main(run, source)
