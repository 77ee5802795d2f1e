#!/usr/bin/env python3
"""PostgreSQL: pgbench's TPC-B-like transactions on a private cluster."""

import glob
import os
import pwd
import shutil
import subprocess

from common import Skip, main

TRANSACTIONS = 1200
CLIENTS = 4
CONFIGURATION = """
listen_addresses = ''
unix_socket_directories = '{sockets}'
shared_buffers = 32MB
autovacuum = off
logging_collector = off
"""


def binaries():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
    if found:
        return found[-1]
    if shutil.which("initdb") and shutil.which("pgbench"):
        return os.path.dirname(shutil.which("initdb"))
    raise Skip("PostgreSQL is not installed")


def user():
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise Skip("there is no user but root")


def postgres(*command, **more):
    who = user()
    if who is not None:
        more.update(user=who.pw_uid, group=who.pw_gid, extra_groups=[])
    environment = dict(os.environ, PATH=f"{binaries()}:{os.environ['PATH']}", LC_ALL="C.UTF-8")
    done = subprocess.run(command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}")


def owned(path):
    os.makedirs(path, mode=0o700, exist_ok=True)
    who = user()
    if who is not None:
        os.chown(path, who.pw_uid, who.pw_gid)
    return path


def started(cluster, sockets, work):
    # The log is elsewhere, because it is not part of the measurement.
    postgres("pg_ctl", "-D", cluster, "-l", os.path.join(sockets, "log"), "-w", "-s", "start")
    try:
        work()
    finally:
        postgres("pg_ctl", "-D", cluster, "-m", "fast", "-w", "-s", "stop")


def make(job, path):
    # The sockets' directory is named in the cluster's configuration, so it stays.
    sockets = owned(os.path.join(job.sources, "pg-sockets"))
    owned(path)
    postgres("initdb", "-D", path, "-A", "trust", "-U", "bench", "--no-sync", "-E", "UTF8")
    with open(os.path.join(path, "postgresql.conf"), "a", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(sockets=sockets))
    fill = ["pgbench", "-i", "-q", "-s", "2", "-h", sockets, "-U", "bench", "postgres"]
    started(path, sockets, lambda: postgres(*fill))


def prepare(job):
    if os.getuid() == 0:
        binaries()
    template = job.source("cluster", lambda path: make(job, path))
    subprocess.run(["cp", "-a", template, job.path("cluster")], check=True)


def run(job):
    sockets = os.path.join(job.sources, "pg-sockets")
    each = job.scaled(TRANSACTIONS // CLIENTS, least=5)
    load = ["pgbench", "-n", "-c", str(CLIENTS), "-j", "2", "-t", str(each), "--random-seed=7", "-h", sockets, "-U", "bench", "postgres"]
    started(job.path("cluster"), sockets, lambda: postgres(*load))
    return each * CLIENTS


main(run, prepare)
