#!/usr/bin/env python3
"""MariaDB with its own defaults (a flush of its log each commit, the double-write buffer): sysbench's transactions that write."""

import os
import subprocess

from common import SEED, Skip, main, server, tool, user_named

TRANSACTIONS = 5000
THREADS = 4
TABLES = 2
ROWS = 20_000


def socket_of(job):
    path = os.path.join(job.sources, "mariadb.sock")
    if len(path) > 100:
        raise Skip(f"the path of the sources is too long for a socket: {path}")
    return path


def running(job, directory):
    socket = socket_of(job)
    command = [tool("mariadbd"), "--no-defaults", "--user=mysql", f"--datadir={directory}", f"--socket={socket}"]
    command += [f"--pid-file={socket}.pid", "--skip-networking", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=24M"]
    # A user other than root creates the socket.
    os.chmod(job.sources, 0o777)
    ping = [tool("mariadb-admin"), "--no-defaults", "--user=root", f"--socket={socket}", "ping"]
    alive = lambda: subprocess.run(ping, capture_output=True, check=False).returncode == 0
    return server(command, os.path.join(job.sources, "mariadb.log"), alive)


def sysbench(job, what):
    command = [tool("sysbench"), "oltp_write_only", "--db-driver=mysql", f"--mysql-socket={socket_of(job)}", "--mysql-user=root"]
    command += ["--mysql-db=bench", f"--tables={TABLES}", f"--table-size={job.scaled(ROWS, least=100)}", f"--rand-seed={SEED}"]
    command += [f"--threads={THREADS}", f"--events={job.scaled(TRANSACTIONS, least=10)}", "--time=0", what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"sysbench {what}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def make(job, path):
    user = user_named("mysql")
    os.makedirs(path)
    os.chown(path, user.pw_uid, user.pw_gid)
    install = [tool("mariadb-install-db"), "--no-defaults", "--user=mysql", f"--datadir={path}", "--skip-test-db"]
    subprocess.run([*install, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
    with running(job, path):
        admin = [tool("mariadb-admin"), "--no-defaults", "--user=root", f"--socket={socket_of(job)}"]
        subprocess.run([*admin, "create", "bench"], check=True)
        sysbench(job, "prepare")


def prepare(job):
    tool("sysbench")
    template = job.source("mariadb", lambda path: make(job, path))
    subprocess.run(["cp", "-a", template, job.path("mariadb")], check=True)


def run(job):
    with running(job, job.path("mariadb")):
        with job.timed():
            sysbench(job, "run")
        check = [tool("mariadb-check"), "--no-defaults", "--user=root", f"--socket={socket_of(job)}", "bench"]
        said = subprocess.run(check, capture_output=True, text=True, check=True).stdout
        if said.count("OK") != TABLES:
            raise SystemExit(f"mariadb-check: {said}")
    return job.scaled(TRANSACTIONS, least=10)


main(run, prepare)
