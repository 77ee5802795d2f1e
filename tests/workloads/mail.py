#!/usr/bin/env python3
"""A mail server: a message is queued, delivered into a maildir, read, moved or removed; each step is durable before the next is begun."""

import base64
import os
import random

from common import SEED, Text, in_threads, main

THREADS = 2
MESSAGES = 700
BOXES = 8
MESSAGE_MEAN = 4000
# One message in this many has an attachment, which compresses only by its encoding.
ATTACHED = 12


def message(thread, n, text, numbers):
    name = f"{numbers.getrandbits(80):020x}"
    head = [
        f"Return-Path: <sender{n % 97}@example.com>",
        f"Delivered-To: user{n % BOXES}@example.org",
        f"Received: from mail.example.com (mail.example.com [192.0.2.{n % 254 + 1}]) by mx.example.org (Postfix) with ESMTPS id {name[:10].upper()};",
        f"\tThu, 1 Jan 2026 {n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02} +0000 (UTC)",
        f"DKIM-Signature: v=1; a=rsa-sha256; d=example.com; s=mail; h=from:to:subject:date; b={base64.b64encode(numbers.randbytes(192)).decode()}",
        f"From: Sender {n % 97} <sender{n % 97}@example.com>",
        f"To: user{n % BOXES}@example.org",
        f"Subject: change {n} of part {n * 31 % 1000}",
        f"Message-ID: <{name}@example.com>",
        "MIME-Version: 1.0",
    ]
    body = text.take(max(200, int(numbers.gammavariate(1.5, MESSAGE_MEAN / 1.5))))
    if n % ATTACHED == 0:
        body += b"\n--part\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(numbers.randbytes(numbers.randrange(20_000, 120_000)))
    return f"{1_767_225_600 + n}.V{thread}I{name}.mx", "\n".join(head).encode() + b"\n\n" + body


def durable(path, content):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(file, content)
    os.fsync(file)
    os.close(file)


def synced(directory):
    file = os.open(directory, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def prepare(job):
    for part in ("incoming", "active"):
        os.makedirs(job.path("queue", part))
    for box in range(BOXES):
        for part in ("tmp", "new", "cur"):
            os.makedirs(job.path("mail", f"user{box}", part))


def serve(job, thread):
    numbers, text = random.Random(SEED + thread), Text(SEED + thread)
    read = []
    for n in range(thread, job.scaled(MESSAGES, least=10), THREADS):
        name, content = message(thread, n, text, numbers)
        queued, active = job.path("queue", "incoming", name), job.path("queue", "active", name)
        durable(queued, content)
        os.rename(queued, active)
        box = job.path("mail", f"user{n % BOXES}")
        durable(f"{box}/tmp/{name}", content)
        os.rename(f"{box}/tmp/{name}", f"{box}/new/{name}")
        synced(f"{box}/new")
        os.unlink(active)
        read.append((box, name))
        # A user reads the mail: new messages are seen, and a third of them are deleted.
        if len(read) == 20:
            for at, (box, name) in enumerate(read):
                seen = f"{box}/cur/{name}:2,S"
                os.rename(f"{box}/new/{name}", seen)
                if at % 3 == 0:
                    os.unlink(seen)
            read.clear()


def run(job):
    in_threads(THREADS, serve, job)
    return job.scaled(MESSAGES, least=10)


main(run, prepare)
