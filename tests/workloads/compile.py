#!/usr/bin/env python3
"""A compile of C: zstd's library, whose sources this repository's build has, with symbols; archived, linked, and once more after a header changed."""

import glob
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from common import Skip, main, tool

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PARTS = ("common", "compress", "decompress", "dictBuilder")
# Files that include it are compiled again, as make does.
CHANGED = "compress/zstd_opt.h"


def prepare(job):
    host = subprocess.run([tool("rustc"), "--print", "host-tuple"], capture_output=True, text=True, check=True).stdout.strip()
    asked = [tool("cargo"), "metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", host]
    done = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip("cargo has not all of the sources: build this repository once")
    (manifest,) = (package["manifest_path"] for package in json.loads(done.stdout)["packages"] if package["name"] == "zstd-sys")
    shutil.copytree(os.path.join(os.path.dirname(manifest), "zstd", "lib"), job.path("zstd"))
    tool("cc")


def compiled(job, source):
    command = ["cc", "-O0", "-g", "-fPIC", "-DZSTD_DISABLE_ASM", "-I.", "-c", source, "-o", source + ".o"]
    subprocess.run(command, cwd=job.path("zstd"), check=True)


def linked(job, objects):
    inside = {"cwd": job.path("zstd"), "check": True}
    for made in ("libzstd.a", "libzstd.so"):
        if os.path.exists(job.path("zstd", made)):
            os.unlink(job.path("zstd", made))
    subprocess.run(["ar", "rcsD", "libzstd.a", *objects], **inside)
    subprocess.run(["cc", "-shared", "-o", "libzstd.so", *objects], **inside)


def includes(path, header):
    with open(path, encoding="utf-8") as file:
        return os.path.basename(header) in file.read()


def run(job):
    root = job.path("zstd")
    sources = sorted(os.path.relpath(path, root) for part in PARTS for path in glob.glob(f"{glob.escape(root)}/{part}/*.c"))
    sources = sources[: job.scaled(len(sources), least=1)]
    objects = [source + ".o" for source in sources]
    again = [source for source in sources if includes(f"{root}/{source}", CHANGED)]
    with ThreadPoolExecutor(2) as compilers:
        for stale in (sources, again):
            list(compilers.map(lambda source: compiled(job, source), stale))
            linked(job, objects)
    return len(sources) + len(again)


main(run, prepare)
