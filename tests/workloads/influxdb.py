#!/usr/bin/env python3
"""InfluxDB: machines send their metrics, a batch a request, and each request's part of the log is synced; it is made tables at the end."""

import http.client
import os
import random

from common import SEED, free_port, in_threads, main, server, tool

CLIENTS = 2
REQUESTS = 1600
HOSTS = 24
CONFIGURATION = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{dir}/meta"
[data]
  dir = "{dir}/data"
  wal-dir = "{dir}/wal"
  query-log-enabled = false
  cache-snapshot-memory-size = "4m"
[monitor]
  store-enabled = false
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
"""


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def healthy(port):
    try:
        return ask(port, "GET", "/ping")[0] == 204
    except (OSError, http.client.HTTPException):
        return False


class Metrics:
    """Of some machines: most values move a little, counters grow."""

    def __init__(self, thread):
        self.numbers = random.Random(SEED + thread)
        self.hosts = range(thread, HOSTS, CLIENTS)
        self.load = {host: self.numbers.uniform(0, 4) for host in self.hosts}
        self.bytes = {host: self.numbers.randrange(1 << 40) for host in self.hosts}

    def batch(self, n):
        numbers, at = self.numbers, (1_767_225_600 + 10 * n) * 1_000_000_000
        for host in self.hosts:
            self.load[host] = max(0.0, self.load[host] + numbers.gauss(0, 0.1))
            self.bytes[host] += int(numbers.expovariate(1e-6))
            name, load = f"host=web-{host:02},region=eu-{host % 3}", self.load[host]
            yield f"cpu,{name} user={load * 17:.2f},system={load * 5:.2f},idle={100 - load * 22:.2f} {at}"
            yield f"mem,{name} used={int(load * 1e9)}i,cached={int(3e9 + numbers.gauss(0, 1e7))}i {at}"
            yield f"net,{name} received={self.bytes[host]}i,sent={self.bytes[host] // 3}i,errors=0i {at}"
            yield f"disk,{name} used={40_000_000_000 + n * 8192}i,reads={self.bytes[host] // 4096}i {at}"


def running(job):
    port, rpc = free_port(), free_port()
    path = os.path.join(job.sources, "influxdb.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(dir=job.path("influxdb"), port=port, rpc=rpc))
    environment = dict(os.environ, HOME=job.sources)
    command = [tool("influxd"), "run", "-config", path]
    return port, server(command, os.path.join(job.sources, "influxdb.log"), lambda: healthy(port), env=environment)


def prepare(job):
    os.makedirs(job.path("influxdb"))
    port, influxd = running(job)
    with influxd:
        if ask(port, "POST", "/query?q=CREATE%20DATABASE%20metrics")[0] != 200:
            raise SystemExit("influxd makes no database")


def run(job):
    port, influxd = running(job)
    each = job.scaled(REQUESTS, least=CLIENTS) // CLIENTS

    def serve(job, thread):
        metrics = Metrics(thread)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for n in range(each):
            connection.request("POST", "/write?db=metrics", "\n".join(metrics.batch(n)))
            answer = connection.getresponse()
            answer.read()
            if answer.status != 204:
                raise SystemExit(f"influxd: {answer.status}")

    with influxd:
        with job.timed():
            in_threads(CLIENTS, serve, job)
        said = ask(port, "GET", "/query?db=metrics&q=SELECT%20count(used)%20FROM%20mem")[1].decode()
        if f",{each * HOSTS}]" not in said:
            raise SystemExit(f"influxd: {said}")
    return each * CLIENTS


main(run, prepare)
