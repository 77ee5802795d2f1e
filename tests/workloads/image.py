#!/usr/bin/env python3
"""The copy of a disk image: stretches that do not compress, text, and zeros, as a system's image has them."""

import os
import random
import subprocess

from common import SEED, Text, main

MEBIBYTES = 160


def make(job, path):
    numbers, text = random.Random(SEED), Text(SEED)
    with open(path, "wb") as file:
        for n in range(job.scaled(MEBIBYTES)):
            kind = n % 8
            file.write(bytes(1 << 20) if kind == 7 else text.take(1 << 20) if kind % 2 else numbers.randbytes(1 << 20))


def source(job):
    return job.source("image", lambda path: make(job, path))


def run(job):
    image = source(job)
    subprocess.run(["cp", "--sparse=never", image, job.path("image")], check=True)
    return os.path.getsize(image) // 4096


main(run, source)
