#!/usr/bin/env python3
"""Logs of a server: each line of its system's log is synced, its web server's by twenty, and both are rotated and packed as logrotate does it."""

import gzip
import os
import random
import shutil

from common import SEED, main

LINES = 6000
ROTATED_BYTES = 300_000
SYNCED_LINES = {"syslog": 1, "access.log": 20}
UNITS = (
    "sshd[{pid}]: Accepted publickey for deploy from 198.51.100.{a} port {port} ssh2: ED25519 SHA256:{token}",
    "sshd[{pid}]: Failed password for invalid user admin from 203.0.113.{a} port {port} ssh2",
    "systemd[1]: Started Session {pid} of user deploy.",
    "kernel: [{up}.{micro:06}] IN=eth0 OUT= MAC=52:54:00:12:34:56 SRC=203.0.113.{a} DST=192.0.2.10 LEN=40 TTL=244 PROTO=TCP SPT={port} DPT=23 SYN",
    "CRON[{pid}]: (root) CMD (run-parts --report /etc/cron.hourly)",
    "app[{pid}]: request={token} status=200 duration={micro}us queue={a}",
)
PAGES = ("/", "/index.html", "/api/v1/items/{n}", "/static/app.{n:06x}.js", "/login", "/search?q=word{n}", "/images/{n}.webp")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "curl/7.88.1", "Mozilla/5.0 (compatible; bot/2.1)")


def system_line(numbers, n):
    values = {"pid": numbers.randrange(400, 32_768), "a": numbers.randrange(1, 255), "port": numbers.randrange(1024, 65_536), "up": 1000 + n}
    values |= {"micro": numbers.randrange(1_000_000), "token": f"{numbers.getrandbits(120):030x}"}
    return f"Jan  1 {n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02} server {numbers.choice(UNITS).format(**values)}\n"


def access_line(numbers, n):
    page = numbers.choice(PAGES).format(n=numbers.randrange(5000))
    when = f"01/Jan/2026:{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02} +0000"
    size, agent = int(numbers.paretovariate(1.1) * 400) % 900_000, numbers.choice(AGENTS)
    return f'198.51.100.{numbers.randrange(1, 255)} - - [{when}] "GET {page} HTTP/1.1" 200 {size} "-" "{agent}"\n'


class Log:
    """One file, synced each so many lines, and rotated when it is large."""

    def __init__(self, job, name):
        self.path, self.each, self.lines = job.path(name), SYNCED_LINES[name], 0
        self.rotated = 0
        self.open()

    def open(self):
        self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def line(self, text):
        os.write(self.file, text.encode())
        self.lines += 1
        if self.lines % self.each == 0:
            os.fdatasync(self.file)
        if os.fstat(self.file).st_size >= ROTATED_BYTES:
            self.rotate()

    def rotate(self):
        self.rotated += 1
        old = f"{self.path}.{self.rotated}"
        os.rename(self.path, old)
        os.close(self.file)
        self.open()
        with open(old, "rb") as plain, gzip.GzipFile(f"{old}.gz", "wb", mtime=0) as packed:
            shutil.copyfileobj(plain, packed)
        os.unlink(old)


def run(job):
    numbers, lines = random.Random(SEED), job.scaled(LINES, least=10)
    system, access = Log(job, "syslog"), Log(job, "access.log")
    for n in range(lines):
        if numbers.random() < 0.25:
            system.line(system_line(numbers, n))
        else:
            access.line(access_line(numbers, n))
    return lines


main(run)
