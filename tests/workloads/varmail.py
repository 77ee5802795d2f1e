#!/usr/bin/env python3
"""A mail server, as filebench's varmail: delete, create + append + fsync, read + append + fsync, read."""

import os
import random

from common import SEED, Text, fill_folders, folder_files, in_threads, main, size_of

THREADS = 8
FILES = 640
LOOPS = 640
MEAN = 16 << 10
OPERATIONS = 13


def prepare(job):
    fill_folders(job, "mail", THREADS, FILES, MEAN)


def append(path, content):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, content)
    os.fsync(file)
    os.close(file)


def read(path):
    with open(path, "rb") as file:
        return len(file.read())


def server(job, thread):
    numbers, text = random.Random(SEED + 1 + thread), Text(SEED + 1 + thread)
    folder = job.path("mail", str(thread))
    files = folder_files(job, THREADS, FILES)
    for n in range(job.scaled(LOOPS // THREADS)):
        os.unlink(f"{folder}/{files.pop(numbers.randrange(len(files)))}")
        new = 100_000 + n
        append(f"{folder}/{new}", text.take(size_of(MEAN, numbers)))
        files.append(new)
        chosen = f"{folder}/{numbers.choice(files)}"
        read(chosen)
        append(chosen, text.take(size_of(MEAN, numbers)))
        read(f"{folder}/{numbers.choice(files)}")


def run(job):
    in_threads(THREADS, server, job)
    return job.scaled(LOOPS // THREADS) * THREADS * OPERATIONS


main(run, prepare)
