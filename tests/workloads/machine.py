#!/usr/bin/env python3
"""A virtual machine's disk image, with direct I/O as QEMU's `cache=none` has it: inside is an ext4, on which a database works while a source tree
is replaced by a newer one."""

import contextlib
import os
import shutil
import sqlite3
import subprocess

from common import SEED, Skip, Text, main, source_tree, tool

IMAGE_BYTES = 256 << 20
FILES = 1200
TRANSACTIONS = 300


@contextlib.contextmanager
def booted(job):
    """The image's file system, mounted."""
    inside = os.path.join(job.sources, "machine")
    os.makedirs(inside, exist_ok=True)
    device = subprocess.run([tool("losetup"), "--find", "--show", "--direct-io=on", job.path("disk.img")], check=True, capture_output=True, text=True).stdout.strip()
    try:
        subprocess.run([tool("mount"), device, inside], check=True)
        try:
            yield inside
        finally:
            subprocess.run([tool("umount"), inside], check=True)
    finally:
        subprocess.run([tool("losetup"), "-d", device], check=True)


def prepare(job):
    if os.getuid() != 0:
        raise Skip("an image is mounted by root alone")
    with open(job.path("disk.img"), "wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run([tool("mkfs.ext4"), "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", job.path("disk.img")], check=True)
    with booted(job) as inside:
        source_tree(f"{inside}/tree", job.scaled(FILES, least=20))


def transact(inside, transactions):
    text = Text(SEED)
    database = sqlite3.connect(f"{inside}/data.db", isolation_level=None)
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
    for n in range(transactions):
        database.execute("INSERT INTO t VALUES (?, ?)", (n, text.take(300).decode(errors="replace")))
    if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
        raise SystemExit("sqlite: the database is damaged")
    database.close()


def run(job):
    files, transactions = job.scaled(FILES, least=20), job.scaled(TRANSACTIONS, least=10)
    with booted(job) as inside, job.timed():
        source_tree(f"{inside}/newer", files, SEED + 1)
        transact(inside, transactions)
        shutil.rmtree(f"{inside}/tree")
        os.rename(f"{inside}/newer", f"{inside}/tree")
        subprocess.run(["sync", "-f", inside], check=True)
    subprocess.run([tool("e2fsck"), "-fn", job.path("disk.img")], check=True, capture_output=True)
    return files + transactions


main(run, prepare)
