#!/usr/bin/env python3
"""Backups: a source tree is copied again and again, with one file in fifty changed between two copies."""

import os
import random
import subprocess

from common import SEED, main, source_tree

FILES = 2500
COPIES = 3


def source(job):
    return job.source("backed-up", lambda path: source_tree(path, job.scaled(FILES, least=20)))


def run(job):
    numbers = random.Random(SEED)
    tree = source(job)
    for copy in range(COPIES):
        target = job.path(f"backup-{copy}")
        subprocess.run(["cp", "-a", tree, target], check=True)
        for directory, _, names in sorted(os.walk(target)):
            for name in sorted(names):
                if numbers.random() < 0.02:
                    with open(os.path.join(directory, name), "r+b") as file:
                        file.write(b"// revised %d\n" % copy)
        os.sync()
    return COPIES * job.scaled(FILES, least=20)


main(run, source)
