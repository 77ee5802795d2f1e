#!/usr/bin/env python3
"""A file server, as filebench's fileserver: create + write, append, read, delete, stat; nothing is fsynced."""

import os
import random

from common import SEED, Text, fill_folders, folder_files, in_threads, main, size_of, write_file

THREADS = 8
FILES = 320
LOOPS = 400
MEAN = 128 << 10
APPENDED = 16 << 10
OPERATIONS = 11


def prepare(job):
    fill_folders(job, "files", THREADS, FILES, MEAN)


def server(job, thread):
    numbers, text = random.Random(SEED + 1 + thread), Text(SEED + 1 + thread)
    folder = job.path("files", str(thread))
    files = folder_files(job, THREADS, FILES)
    for n in range(job.scaled(LOOPS // THREADS)):
        new = 100_000 + n
        write_file(f"{folder}/{new}", text.take(size_of(MEAN, numbers)))
        files.append(new)
        with open(f"{folder}/{numbers.choice(files)}", "ab") as file:
            file.write(text.take(size_of(APPENDED, numbers)))
        with open(f"{folder}/{numbers.choice(files)}", "rb") as file:
            file.read()
        os.unlink(f"{folder}/{files.pop(numbers.randrange(len(files)))}")
        os.stat(f"{folder}/{numbers.choice(files)}")


def run(job):
    in_threads(THREADS, server, job)
    return job.scaled(LOOPS // THREADS) * THREADS * OPERATIONS


main(run, prepare)
