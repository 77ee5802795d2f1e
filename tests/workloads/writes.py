#!/usr/bin/env python3
"""4 KiB writes to one file: writes.py DIR SCALE sequential|random WINDOW [ticks|reserved], an fsync after each WINDOW of them.

Sequential writes append; random ones overwrite a file that is there, each block at most once. With "ticks" each window
begins in a tick of the kernel's clock of its own: then it changes the file's times, and there is something to commit
however quick the machine is. With "reserved" the file has its blocks, and nothing was ever written to them (fallocate):
each write says so in the file's tree of extents.
"""

import os
import random
import time

from common import BLOCK, SEED, main

FILE_BLOCKS = 16384
# <linux/time.h>: the clock of files' times; Python has no name for it.
CLOCK_REALTIME_COARSE = 5
# An fsync costs more than a write: with a shorter window, fewer writes take long enough.
WRITES = {1: 1500, 10: 6000, 100: 16000, 1000: 16000}


def pattern(job):
    order, window, *how = job.parameters
    return order, int(window), how


def next_tick():
    now = time.clock_gettime(CLOCK_REALTIME_COARSE)
    while time.clock_gettime(CLOCK_REALTIME_COARSE) == now:
        time.sleep(0.0005)


def file_blocks(job):
    return job.scaled(FILE_BLOCKS, least=256)


def prepare(job):
    order, _, how = pattern(job)
    if "reserved" in how:
        with open(job.path("file"), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, file_blocks(job) * BLOCK)
    elif order == "random":
        numbers = random.Random(SEED)
        with open(job.path("file"), "wb") as file:
            for _ in range(file_blocks(job)):
                file.write(numbers.randbytes(BLOCK))


def run(job):
    order, window, how = pattern(job)
    writes = min(job.scaled(WRITES.get(window, 8000), least=window), file_blocks(job))
    numbers = random.Random(SEED + 1)
    blocks = range(writes) if order == "sequential" else numbers.sample(range(file_blocks(job)), writes)
    file = os.open(job.path("file"), os.O_CREAT | os.O_WRONLY)
    for n, block in enumerate(blocks):
        if "ticks" in how and n % window == 0:
            next_tick()
        os.pwrite(file, numbers.randbytes(BLOCK), block * BLOCK)
        if (n + 1) % window == 0:
            os.fsync(file)
    os.fsync(file)
    os.close(file)
    return writes


main(run, prepare)
