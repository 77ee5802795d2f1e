#!/usr/bin/env python3
"""Writes blocks of 4 KiB that compress to some 40% into a file: 1 MiB, three times again with 40 bytes more changed in each block, then the next."""
import os
import random
import sys

VERSIONS = 4
RUN = 256

path, blocks = sys.argv[1], int(sys.argv[2])
text = b"The quick brown fox jumps over the lazy dog, and then it does so again. " * 40
with open(path, "r+b", buffering=0) as file:
    for first in range(0, blocks, RUN):
        for version in range(VERSIONS):
            run = bytearray()
            for block in range(first, first + RUN):
                content = bytearray(random.Random(block).randbytes(1500) + text)[:4096]
                for change in range(version):
                    other = random.Random(f"{block} {change}")
                    at = other.randrange(4096 - 40)
                    content[at : at + 40] = other.randbytes(40)
                run += content
            file.seek(first * 4096)
            file.write(run)
            # Otherwise the versions would merge in the write buffer.
            os.fsync(file.fileno())
