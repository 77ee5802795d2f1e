#!/usr/bin/env python3
"""SQLite transactions, each durable: a row inserted, an older one changed, an index kept; sqlite.py DIR SCALE [wal]."""

import random
import sqlite3

from common import SEED, Text, main

TRANSACTIONS = 700


def run(job):
    transactions = job.scaled(TRANSACTIONS, least=10)
    text, numbers = Text(SEED), random.Random(SEED)
    database = sqlite3.connect(job.path("data.db"), isolation_level=None)
    mode = "WAL" if "wal" in job.parameters else "DELETE"
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, body TEXT)")
    database.execute("CREATE INDEX i ON t (name)")
    for n in range(transactions):
        database.execute("BEGIN")
        body = text.take(300).decode(errors="replace")
        database.execute("INSERT INTO t VALUES (?, ?, ?)", (n, f"name{n * 7919 % 1000}", body))
        database.execute("UPDATE t SET body = body || 'x' WHERE id = ?", (numbers.randrange(n + 1),))
        database.execute("COMMIT")
    if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
        raise SystemExit("sqlite: the database is damaged")
    database.close()
    return transactions


main(run)
