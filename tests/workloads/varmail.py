#!/usr/bin/env python3
"""A mail server, as filebench's varmail: delete, create + append + fsync, read + append + fsync, read."""

import os
import random
import threading

from common import SEED, Text, main, size_of, write_file

THREADS = 8
FILES = 640
LOOPS = 640
MEAN = 16 << 10
OPERATIONS = 13


def prepare(job):
    numbers, text = random.Random(SEED), Text(SEED)
    for thread in range(THREADS):
        os.makedirs(job.path("mail", str(thread)))
        for n in range(job.scaled(FILES // THREADS, least=4)):
            write_file(job.path("mail", str(thread), str(n)), text.take(size_of(MEAN, numbers)))


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
    files = list(range(job.scaled(FILES // THREADS, least=4)))
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
    threads = [threading.Thread(target=server, args=(job, n)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return job.scaled(LOOPS // THREADS) * THREADS * OPERATIONS


main(run, prepare)
