#!/usr/bin/env python3
"""Redis with `appendfsync always`: sessions of a web application are made, used and expire; its log is rewritten once on the way."""

import json
import os
import random
import socket
import time

from common import SEED, Skip, in_threads, main, server, tool

CLIENTS = 4
COMMANDS = 6000
SESSIONS = 2000
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
)


class Refused(SystemExit):
    """The server answers with an error."""


class Client:
    """One connection; the protocol is lines and counted strings."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def say(self, *words):
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            word = str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))
        return self.answer()

    def answer(self):
        line = self.file.readline().rstrip()
        if line[:1] == b"-":
            raise Refused(f"redis: {line.decode()}")
        if line[:1] == b"$":
            return None if line == b"$-1" else self.file.read(int(line[1:]) + 2)[:-2]
        return line[1:]


def ready(path):
    try:
        return Client(path).say("PING") == b"PONG"
    except (OSError, Refused):
        return False


def session(n, numbers, visits):
    return json.dumps(
        {
            "user": n * 7919 % 100_000,
            "token": f"{numbers.getrandbits(256):064x}",
            "agent": AGENTS[n % len(AGENTS)],
            "address": f"192.0.2.{n % 254 + 1}",
            "created": 1_767_225_600 + n,
            "visits": visits,
            "cart": [{"article": numbers.randrange(5000), "count": numbers.randrange(1, 4)} for _ in range(visits % 5)],
        }
    )


def running(job):
    # The path of a socket must be short.
    path = os.path.join(job.sources, "redis.sock")
    if len(path) > 100:
        raise Skip(f"the path of the sources is too long for a socket: {path}")
    os.makedirs(job.path("redis"), exist_ok=True)
    options = {"dir": job.path("redis"), "port": 0, "unixsocket": path, "appendonly": "yes", "appendfsync": "always", "save": ""}
    command = [tool("redis-server")]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    return path, server(command, os.path.join(job.sources, "redis.log"), lambda: ready(path))


def prepare(job):
    path, redis = running(job)
    with redis:
        client, numbers = Client(path), random.Random(SEED)
        sessions = job.scaled(SESSIONS, least=CLIENTS)
        for first in range(0, sessions, 100):
            made = ((f"session:{n}", session(n, numbers, 0)) for n in range(first, min(first + 100, sessions)))
            client.say("MSET", *(word for pair in made for word in pair))


def run(job):
    path, redis = running(job)
    each, sessions = job.scaled(COMMANDS) // CLIENTS, job.scaled(SESSIONS, least=CLIENTS)

    def serve(job, thread):
        client, numbers = Client(path), random.Random(SEED + 1 + thread)
        for n in range(each):
            chosen, kind = numbers.randrange(sessions), numbers.random()
            if kind < 0.6:
                client.say("SET", f"session:{chosen}", session(chosen, numbers, n), "EX", 864_000)
            elif kind < 0.8:
                client.say("INCR", f"page:{numbers.randrange(200)}")
            elif kind < 0.95:
                client.say("LPUSH", f"jobs:{chosen % 8}", json.dumps({"kind": "mail", "to": f"user{chosen}@example.org", "id": n}))
            else:
                client.say("DEL", f"session:{chosen}")
            if thread == 0 and n == each // 2:
                client.say("BGREWRITEAOF")

    with redis:
        with job.timed():
            in_threads(CLIENTS, serve, job)
        client = Client(path)
        while b"aof_rewrite_in_progress:1" in client.say("INFO", "persistence"):
            time.sleep(0.01)
        if b"aof_last_write_status:ok" not in client.say("INFO", "persistence"):
            raise SystemExit("redis: its log is not written")
    return each * CLIENTS


main(run, prepare)
