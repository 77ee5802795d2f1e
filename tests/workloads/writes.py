#!/usr/bin/env python3
"""4 KiB writes to one file: writes.py DIR SCALE sequential|random WINDOW, an fsync after each WINDOW of them.

Sequential writes append; random ones overwrite a file that is there, each block at most once.
"""

import os
import random

from common import BLOCK, SEED, main

FILE_BLOCKS = 16384
# An fsync costs more than a write: the shorter the window, the fewer writes take a while.
WRITES = {1: 1500, 10: 6000, 100: 16000, 1000: 16000}


def pattern(job):
    order, window = job.parameters
    return order, int(window)


def file_blocks(job):
    return job.scaled(FILE_BLOCKS, least=256)


def prepare(job):
    order, _ = pattern(job)
    if order == "random":
        numbers = random.Random(SEED)
        with open(job.path("file"), "wb") as file:
            for _ in range(file_blocks(job)):
                file.write(numbers.randbytes(BLOCK))


def run(job):
    order, window = pattern(job)
    writes = min(job.scaled(WRITES.get(window, 8000), least=window), file_blocks(job))
    numbers = random.Random(SEED + 1)
    blocks = range(writes) if order == "sequential" else numbers.sample(range(file_blocks(job)), writes)
    file = os.open(job.path("file"), os.O_CREAT | os.O_WRONLY)
    for n, block in enumerate(blocks, 1):
        os.pwrite(file, numbers.randbytes(BLOCK), block * BLOCK)
        if n % window == 0:
            os.fsync(file)
    os.fsync(file)
    os.close(file)
    return writes


main(run, prepare)
