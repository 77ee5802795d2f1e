"""What the workloads share: how they are called, and content that is made from a seed."""

import argparse
import contextlib
import functools
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

BLOCK = 4096
SEED = 20090


class Skip(Exception):
    """What a workload needs is not on this machine."""


@functools.cache
def text_pool():
    """A mebibyte of text that compresses as source code does."""
    numbers = random.Random(SEED)
    words = "let return struct segment the of map chunk write read journal commit block flash self match".split()
    parts, size = [], 0
    while size < 1 << 20:
        word = numbers.choice(words)
        if numbers.random() < 0.25:
            word += f"{numbers.getrandbits(24):x}"
        word += "\n" if numbers.random() < 0.12 else " "
        parts.append(word)
        size += len(word)
    return "".join(parts).encode()


class Text:
    """Text of any length, different at every call."""

    def __init__(self, seed):
        self.pool = text_pool()
        self.numbers = random.Random(seed)

    def take(self, size):
        out = bytearray()
        while len(out) < size:
            at = self.numbers.randrange(len(self.pool))
            out += self.pool[at : at + min(size - len(out), self.numbers.randrange(500, 60_000))]
        return bytes(out)


# Longer than 64 bytes: many source files of a project begin alike, and a hash of a block's head cannot distinguish such blocks.
LICENCE = b"// Licensed under the Apache License, Version 2.0. See the file LICENSE at the root of this project.\n\n"


def source_tree(root, files, seed=SEED):
    """Writes a tree of source files: most small, a few large, every third with the same head."""
    text = Text(seed)
    numbers = random.Random(seed + 1)
    for n in range(files):
        path = f"{root}/crate{n // 100}/src/module{n // 10 % 10}/file{n}.rs"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        size = numbers.randrange(200, 9000) + (60_000 if numbers.random() < 0.06 else 0)
        with open(path, "wb") as file:
            file.write((LICENCE if n % 3 == 0 else b"") + text.take(size))


def write_file(path, content):
    with open(path, "wb") as file:
        file.write(content)


def size_of(mean, numbers):
    """A file's size as filebench draws it: a gamma distribution."""
    return max(1, int(numbers.gammavariate(1.5, mean / 1.5)))


def folder_files(job, folders, files):
    """The numbers of the files that each folder begins with."""
    return list(range(job.scaled(files // folders, least=4)))


def fill_folders(job, root, folders, files, mean):
    """A folder for each thread of a server, with files of that mean size."""
    numbers, text = random.Random(SEED), Text(SEED)
    for folder in range(folders):
        os.makedirs(job.path(root, str(folder)))
        for n in folder_files(job, folders, files):
            write_file(job.path(root, str(folder), str(n)), text.take(size_of(mean, numbers)))


def in_threads(count, serve, job):
    """Runs `serve(job, number)` as so many threads."""
    threads = [threading.Thread(target=serve, args=(job, n)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tool(name):
    """The path of a command, those of the system included."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise Skip(f"{name} is not installed")
    return found


def user_named(name):
    """A user that a server runs as, which refuses to run as root."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Skip(f"there is no user {name}") from None


def free_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def server(command, log, ready, seconds=60, **how):
    """A server, from where `ready()` is true until it has ended in order. Its log is outside of what is measured."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **how)
    try:
        end = time.monotonic() + seconds
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                with open(log, "rb") as text:
                    raise SystemExit(f"{command[0]} is not ready: {text.read()[-2000:].decode(errors='replace')}")
            time.sleep(0.01)
        yield process
        process.terminate()
        if process.wait(timeout=120) not in (0, -15):
            raise SystemExit(f"{command[0]} ended with {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Job:
    """One call of a workload."""

    def __init__(self, arguments):
        self.dir = arguments.dir
        self.sources = arguments.sources
        self.parameters = arguments.parameters
        self.scale = arguments.scale
        self.seconds = None

    @contextlib.contextmanager
    def timed(self):
        """What of the run its time is, where a server's start and end are not."""
        begin = time.monotonic()
        yield
        self.seconds = (self.seconds or 0) + time.monotonic() - begin

    def scaled(self, n, least=1):
        return max(least, n * self.scale // 100)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def source(self, name, make):
        """A file or directory outside the file system that is measured, made once."""
        path = os.path.join(self.sources, f"{name}-{self.scale}")
        if not os.path.exists(path):
            part = path + ".part"
            shutil.rmtree(part, ignore_errors=True)
            make(part)
            os.rename(part, path)
        return path


def main(run, prepare=None):
    """Runs a workload. `run(job)` returns its operations; `prepare(job)` makes what must be there before."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--prepare", action="store_true", help="only make what the run needs, in DIR and in the sources")
    parser.add_argument("--sources", help="where to keep what is copied from; made anew and removed if not given")
    parser.add_argument("dir", metavar="DIR", help="a directory on the file system that is measured")
    parser.add_argument("scale", metavar="SCALE", type=int, help="how much, in per cent of the usual")
    parser.add_argument("parameters", metavar="PARAMETER", nargs="*")
    arguments = parser.parse_args()
    own = None
    if arguments.sources is None:
        arguments.sources = own = tempfile.mkdtemp(prefix="workload-", dir=os.environ.get("TMPDIR", "/var/tmp"))
        os.chmod(own, 0o755)
    arguments.sources = os.path.abspath(arguments.sources)
    arguments.dir = os.path.abspath(arguments.dir)
    job = Job(arguments)
    marker = job.path(".prepared")
    try:
        if not os.path.exists(marker):
            if prepare is not None:
                prepare(job)
            write_file(marker, b"")
        if not arguments.prepare:
            text_pool()  # made before the clock starts
            begin = time.monotonic()
            operations = run(job)
            seconds = time.monotonic() - begin if job.seconds is None else job.seconds
            print(f"{operations} operations in {seconds:.3f} s")
    except Skip as reason:
        print(f"SKIP: {os.path.basename(sys.argv[0])}: {reason}")
        sys.exit(77)
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)
