#!/usr/bin/env python3
"""Puts of random keys into RocksDB (its db_bench, fillrandom): kv.py DIR SCALE VALUE_BYTES [COMPRESSION]."""

import subprocess

from common import SEED, main, tool

BYTES = 48 << 20


def run(job):
    value = int(job.parameters[0])
    compression = job.parameters[1] if len(job.parameters) > 1 else "none"
    puts = job.scaled(BYTES // (value + 16), least=100)
    subprocess.run(
        [
            tool("db_bench"),
            "--benchmarks=fillrandom",
            f"--db={job.path('kv')}",
            f"--num={puts}",
            f"--value_size={value}",
            f"--seed={SEED}",
            f"--compression_type={compression}",
            # Small, so that tables are written and merged while the puts continue.
            f"--write_buffer_size={8 << 20}",
            "--sync=0",
            "--threads=1",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return puts


main(run)
