#!/usr/bin/env python3
"""A sort as MapReduce does it: the input is loaded in splits, each is mapped to sorted runs by reducer, which are spilled and fetched; the
reducers merge them. What is loaded and what comes out is kept twice, as HDFS does with two replicas; every file is synced."""

import heapq
import os
import random

from common import SEED, Text, main

MEBIBYTES = 96
SPLITS = 8
REDUCERS = 4
LINE = 100


def put(path, data):
    with open(path, "wb") as file:
        for at in range(0, len(data), 1 << 20):
            file.write(data[at : at + (1 << 20)])
        file.flush()
        os.fsync(file.fileno())


def lines(job):
    """Records with a random key of 10 bytes and text behind it, as sort benchmarks have them."""
    numbers, text = random.Random(SEED), Text(SEED)
    for _ in range(job.scaled((MEBIBYTES << 20) // LINE)):
        body = text.take(LINE - 12).replace(b"\n", b" ")
        yield b"%010x" % numbers.getrandbits(40) + b" " + body + b"\n"


def run(job):
    for name in ["input", "copy", "spill", "fetch", "output", "output-copy"]:
        os.makedirs(job.path(name), exist_ok=True)
    records = list(lines(job))
    each = -(-len(records) // SPLITS)
    files = 0
    for split in range(SPLITS):
        data = b"".join(records[split * each : (split + 1) * each])
        for replica in ["input", "copy"]:
            put(job.path(f"{replica}/{split}"), data)
            files += 1
    for split in range(SPLITS):
        with open(job.path(f"input/{split}"), "rb") as file:
            mapped = file.read().splitlines(keepends=True)
        parts = [[] for _ in range(REDUCERS)]
        for record in mapped:
            parts[int(record[:2], 16) * REDUCERS >> 8].append(record)
        for reducer, part in enumerate(parts):
            put(job.path(f"spill/{split}.{reducer}"), b"".join(sorted(part)))
            files += 1
    for reducer in range(REDUCERS):
        runs = []
        for split in range(SPLITS):
            # The reducer's copy of what the mapper spilled.
            with open(job.path(f"spill/{split}.{reducer}"), "rb") as file:
                data = file.read()
            put(job.path(f"fetch/{split}.{reducer}"), data)
            runs.append(data.splitlines(keepends=True))
            files += 1
        merged = b"".join(heapq.merge(*runs))
        for replica in ["output", "output-copy"]:
            put(job.path(f"{replica}/{reducer}"), merged)
            files += 1
    return files


main(run)
