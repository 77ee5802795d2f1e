#!/usr/bin/env python3
"""4 KiB writes to one file: writes.py DIR SCALE sequential|random WINDOW [ticks], an fsync after each WINDOW of them.

Sequential writes append; random ones overwrite a file that is there, each block at most once. With "ticks" each window
begins in a tick of the kernel's clock of its own: then it changes the file's times, and there is something to commit
however quick the machine is.
"""

import os
import random
import time

from common import BLOCK, SEED, main

FILE_BLOCKS = 16384
# <linux/time.h>: the clock of files' times; Python has no name for it.
CLOCK_REALTIME_COARSE = 5
# An fsync costs more than a write: the shorter the window, the fewer writes take a while.
WRITES = {1: 1500, 10: 6000, 100: 16000, 1000: 16000}


def pattern(job):
    order, window, *ticks = job.parameters
    return order, int(window), bool(ticks)


def next_tick():
    now = time.clock_gettime(CLOCK_REALTIME_COARSE)
    while time.clock_gettime(CLOCK_REALTIME_COARSE) == now:
        time.sleep(0.0005)


def file_blocks(job):
    return job.scaled(FILE_BLOCKS, least=256)


def prepare(job):
    order, *_ = pattern(job)
    if order == "random":
        numbers = random.Random(SEED)
        with open(job.path("file"), "wb") as file:
            for _ in range(file_blocks(job)):
                file.write(numbers.randbytes(BLOCK))


def run(job):
    order, window, ticks = pattern(job)
    writes = min(job.scaled(WRITES.get(window, 8000), least=window), file_blocks(job))
    numbers = random.Random(SEED + 1)
    blocks = range(writes) if order == "sequential" else numbers.sample(range(file_blocks(job)), writes)
    file = os.open(job.path("file"), os.O_CREAT | os.O_WRONLY)
    for n, block in enumerate(blocks):
        if ticks and n % window == 0:
            next_tick()
        os.pwrite(file, numbers.randbytes(BLOCK), block * BLOCK)
        if (n + 1) % window == 0:
            os.fsync(file)
    os.fsync(file)
    os.close(file)
    return writes


main(run, prepare)
