"""How a sweep of short runs scales: 200 of them on one worker process and on two, three times each.

The ratio is of the time on one to twice the time on two: 1 is perfect. A machine may not scale itself: its processors share memory, and
do other work. So the same runs are also shared out between plain processes, without Dask, and their ratio stands beside. The share of
the time that workers were busy with runs is told too: what lacks there is what the sweep itself costs.
"""

import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

import vellum
from dask.distributed import Client, LocalCluster, get_task_stream

RUNS, TIMES = 200, int(os.environ.get("TIMES", "3"))
REQUESTS = int(os.environ.get("REQUESTS", "100000"))
OPTIONS = {"capacity": "256M", "op": 28, "precondition": "fill", "requests": REQUESTS}
POLICIES = ["base", "vellum"]


def swept(client: Client, workers: int) -> tuple[float, float]:
    """Seconds that the sweep takes, and the share of them that workers are busy with runs."""
    with get_task_stream(client) as stream:
        start = time.monotonic()
        sweep = vellum.sweep("zipf", "oftl", POLICIES, vary={"seed": range(RUNS // 2)}, client=client, **OPTIONS)
        assert sweep.figures.rows == RUNS
        seconds = time.monotonic() - start
    busy = sum(
        part["stop"] - part["start"] for task in stream.data for part in task["startstops"] if part["action"] == "compute"
    )
    return seconds, busy / (workers * seconds)


def on(workers: int) -> tuple[float, float]:
    """That on so many worker processes of a thread each, once they are up and have loaded the package."""
    local = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with local as cluster, Client(cluster) as client:
        client.wait_for_workers(workers)
        client.run(vellum.policies)
        return swept(client, workers)


def plain_run(number: int) -> None:
    """One of the sweep's runs."""
    vellum.run("zipf", "oftl", POLICIES[number % 2], seed=number // 2, **OPTIONS)


def plain(workers: int) -> float:
    """Seconds that the same runs take in so many plain processes, once they are up and have loaded the package."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(plain_run, range(2 * workers)))
        start = time.monotonic()
        list(pool.map(plain_run, range(RUNS)))
        return time.monotonic() - start


if __name__ == "__main__":
    load = os.getloadavg()[0]
    ratios = []
    for _ in range(TIMES):
        machine = plain(1) / (2 * plain(2))
        (one, _), (two, busy) = on(1), on(2)
        ratios.append(one / (2 * two))
        print(
            f"{RUNS} runs: {one:.1f} s on one worker, {two:.1f} s on two: {ratios[-1]:.2f} of perfect scaling, busy {busy:.1%};"
            f" plain processes {machine:.2f}",
            flush=True,
        )
    print(f"least {min(ratios):.2f}, median {statistics.median(ratios):.2f}; {os.cpu_count()} cores, load before {load:.1f}")
