#!/usr/bin/env python3
"""A package index is updated and packages are installed, as apt and dpkg do it, in a root of their own: what this machine's apt knows is the
mirror, and the packages are unpacked with an fsync of each file. No script of a package is run: those that have one for this step are left out."""

import glob
import os
import shutil
import subprocess

from common import Skip, main, tool, write_file

ENTRIES = 40_000
# The dependencies of a compiler and git, and an interpreter's library: about 60 MiB to download.
PACKAGES = (
    "binutils-common binutils-x86-64-linux-gnu cpp-12 g++-12 gcc-12 git git-man libc6-dev libgcc-12-dev libperl5.36 "
    "libpython3.11-stdlib libstdc++-12-dev linux-libc-dev manpages-dev perl-modules-5.36"
).split()


def said(*command, **how):
    try:
        done = subprocess.run(command, capture_output=True, **how)
    except subprocess.TimeoutExpired as late:
        raise Skip(str(late)) from late
    if done.returncode != 0:
        raise Skip(f"{os.path.basename(command[0])}: {done.stderr.decode(errors='replace').strip()[-200:]}")
    return done.stdout


def index(job, path):
    """The mirror's index: the beginning of what apt has here."""
    os.makedirs(path)
    files = said(tool("apt-get"), "indextargets", "--format", "$(FILENAME)", "Created-By: Packages").decode().split()
    there = [found for name in files for found in glob.glob(glob.escape(name) + "*")]
    if not there:
        raise Skip("apt has no index of packages: apt-get update")
    largest = max(there, key=os.path.getsize)
    entries = said("/usr/lib/apt/apt-helper", "cat-file", largest).split(b"\n\n")
    write_file(f"{path}/Packages", b"\n\n".join(entries[: job.scaled(ENTRIES, least=100)]) + b"\n\n")


def archives(job, path):
    os.makedirs(path)
    names = PACKAGES[: job.scaled(len(PACKAGES), least=1)]
    said(tool("apt-get"), "-o", "APT::Sandbox::User=root", "download", *names, cwd=path, timeout=300)
    for archive in glob.glob(f"{path}/*.deb"):
        control = said(tool("dpkg-deb"), "--ctrl-tarfile", archive)
        if b"./preinst\0" in control:
            os.remove(archive)


def sources(job):
    return job.source("index", lambda path: index(job, path)), job.source("archives", lambda path: archives(job, path))


def prepare(job):
    tool("dpkg")
    mirror, _ = sources(job)
    root = job.path("root")
    for directory in ("etc/apt", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        os.makedirs(f"{root}/{directory}")
    write_file(f"{root}/var/lib/dpkg/status", b"")
    # Instead of the machine's configuration: a container's discards caches, and may run commands.
    options = {
        "Dir": root,
        "Dir::State::status": f"{root}/var/lib/dpkg/status",
        "Dir::Etc::main": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::AllowInsecureRepositories": "true",
    }
    lines = (f'{name} "{value}";\n' for name, value in options.items())
    write_file(f"{root}/etc/apt/apt.conf", "".join(lines).encode())
    write_file(f"{root}/etc/apt/sources.list", f"deb [trusted=yes] copy:{mirror} ./\n".encode())


def run(job):
    _, packages = sources(job)
    root = job.path("root")
    said(tool("apt-get"), "update", env=dict(os.environ, APT_CONFIG=f"{root}/etc/apt/apt.conf"))
    if not os.path.exists(f"{root}/var/cache/apt/pkgcache.bin"):
        raise Skip("apt-get update makes no cache here")
    cache = f"{root}/var/cache/apt/archives"
    fetched = [shutil.copy(archive, cache) for archive in sorted(glob.glob(f"{packages}/*.deb"))]
    said(tool("dpkg"), f"--root={root}", "--force-all", "--unpack", *fetched)
    lists = glob.glob(f"{root}/var/lib/dpkg/info/*.list")
    if len(lists) < len(fetched):
        raise Skip("dpkg did not unpack all")
    return sum(open(name, "rb").read().count(b"\n") for name in lists)


main(run, prepare)
