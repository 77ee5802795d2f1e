#!/usr/bin/env python3
"""YCSB's workload A on SQLite: records of ten fields of 100 bytes are loaded, then half reads and half updates of one field, by Zipf's law; each
update is a transaction, and durable."""

import random
import sqlite3

from common import SEED, main

RECORDS = 20_000
OPERATIONS = 6000
FIELDS = 10
SKEW = 0.99


def field(numbers):
    return "".join(numbers.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=100))


def run(job):
    numbers = random.Random(SEED)
    records, operations = job.scaled(RECORDS, least=100), job.scaled(OPERATIONS, least=10)
    database = sqlite3.connect(job.path("ycsb.db"), isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    columns = ", ".join(f"field{n} TEXT" for n in range(FIELDS))
    database.execute(f"CREATE TABLE usertable (key TEXT PRIMARY KEY, {columns})")
    marks = ", ".join("?" * (FIELDS + 1))
    for first in range(0, records, 100):
        database.execute("BEGIN")
        for key in range(first, min(first + 100, records)):
            row = [f"user{key * 2654435761 % (1 << 32):010}"] + [field(numbers) for _ in range(FIELDS)]
            database.execute(f"INSERT INTO usertable VALUES ({marks})", row)
        database.execute("COMMIT")
    weights = [1 / (rank + 1) ** SKEW for rank in range(records)]
    ranks = numbers.choices(range(records), weights, k=operations)
    for rank in ranks:
        # Popular records are not adjacent.
        key = f"user{rank * 2654435761 % (1 << 32):010}"
        if numbers.random() < 0.5:
            database.execute("SELECT * FROM usertable WHERE key = ?", (key,)).fetchall()
        else:
            chosen = numbers.randrange(FIELDS)
            database.execute(f"UPDATE usertable SET field{chosen} = ? WHERE key = ?", (field(numbers), key))
    database.close()
    return records + operations


main(run)
