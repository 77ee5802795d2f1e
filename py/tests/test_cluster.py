"""Sweeps on a cluster of Dask: a scheduler and workers that are processes, some of which die."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vellum
import vellum.workers
from test_fleet import text as tables
from test_sweep import SHORT, text
from vellum.task import Answer, Task, WrongEngine, do

pytest.importorskip("distributed", reason="SKIP: no distributed")
import distributed  # noqa: E402

LONG: dict[str, Any] = {**SHORT, "requests": 60_000}
"""Runs of some tenths of a second: time enough to die in."""


class Cluster:
    """A scheduler and its workers, each a process."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        quiet = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s", "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            env={**os.environ, **quiet},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    def scheduler(self) -> "subprocess.Popen[bytes]":
        words = ("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard", "--no-show")
        process = self.start(*words)
        end = time.monotonic() + 60
        while not self.listens():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        return process

    def listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def worker(self) -> "subprocess.Popen[bytes]":
        words = ("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "30")
        return self.start(*words)

    def client(self) -> distributed.Client:
        return distributed.Client(self.address, timeout=60)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.end()


def large(**more: Any) -> vellum.Sweep:
    loads = {"even": "uniform", "hot": "zipf"}
    return vellum.sweep(loads, "oftl", ["base", "vellum"], vary={"depth": [1, 4, 8]}, **{**LONG, **more})


def test_a_worker_that_dies_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.scheduler()
    doomed, _ = cluster.worker(), cluster.worker()
    alone = text(large())
    with cluster.client() as client:
        client.wait_for_workers(2, timeout=60)
        sweep = large(client=client, cache=tmp_path)
        for number, _ran in enumerate(sweep):
            if number == 1:
                doomed.send_signal(signal.SIGKILL)
        assert len(client.scheduler_info()["workers"]) == 1
        assert text(sweep) == alone and not sweep.failed
        # All have written the same, byte by byte.
        again = large(client=client, cache=tmp_path)
        assert all(ran.kept for ran in again)
        assert text(large(cache=tmp_path)) == alone


def test_a_fleet_loses_nothing_when_a_worker_dies(cluster: Cluster, tmp_path: Path) -> None:
    groups = [
        vellum.Group("hot", 300, ("zipf", {"theta": 1.1}), 1.5, drive="oftl", spread=0.4, ages=(0, 4)),
        vellum.Group("even", 100, "uniform", 0.7, drive="oftl", spread=0.2, ages=(1, 6), options={"depth": 8}),
    ]
    options: dict[str, Any] = {"capacity": "128M", "op": 28, "precondition": "fill", "repeats": 3, "years": 4}
    alone = vellum.fleet(groups, ["base", "vellum"], **options)
    cluster.scheduler()
    doomed, _ = cluster.worker(), cluster.worker()
    with cluster.client() as client:
        client.wait_for_workers(2, timeout=60)
        told: list[tuple[int, int]] = []

        def progress(done: int, all: int) -> None:
            told.append((done, all))
            if done == 4:
                doomed.send_signal(signal.SIGKILL)

        spread = vellum.fleet(groups, ["base", "vellum"], client=client, cache=tmp_path, progress=progress, **options)
        assert told == [(done, 12) for done in range(1, 13)]
        assert len(client.scheduler_info()["workers"]) == 1
        assert tables(spread) == tables(alone) and not any(ran.kept for ran in spread.runs)
        again = vellum.fleet(groups, ["base", "vellum"], client=client, cache=tmp_path, **options)
        assert tables(again) == tables(alone) and all(ran.kept for ran in again.runs)


def test_a_lost_scheduler_is_an_error_and_finished_runs_are_kept(cluster: Cluster, tmp_path: Path) -> None:
    scheduler = cluster.scheduler()
    cluster.worker()
    with distributed.Client(cluster.address, timeout=4) as client:
        client.wait_for_workers(1, timeout=60)
        sweep = large(client=client, cache=tmp_path)
        start = None
        with pytest.raises(vellum.RunError, match="the scheduler is lost .* runs to go: do the same with another client"):
            for number, _ran in enumerate(sweep):
                if number == 2:
                    scheduler.send_signal(signal.SIGKILL)
                    start = time.monotonic()
        assert start is not None and time.monotonic() - start < 60
    with pytest.raises(vellum.RunError, match="closed, or has failed"):
        list(sweep)
    here = large(cache=tmp_path)
    assert 3 <= [ran.kept for ran in here].count(True) < len(here)
    assert text(here) == text(large())
    with pytest.raises(vellum.RunError, match="the scheduler is lost .the client is closed., with 12 runs to go"):
        list(large(client=client))


def test_a_sweep_continues_when_the_scheduler_comes_back(cluster: Cluster) -> None:
    scheduler = cluster.scheduler()
    cluster.worker()
    with cluster.client() as client:
        client.wait_for_workers(1, timeout=60)
        sweep = large(client=client)
        for number, _ran in enumerate(sweep):
            if number == 1:
                scheduler.send_signal(signal.SIGKILL)
                scheduler.wait()
                cluster.scheduler()
                cluster.worker()
        assert text(sweep) == text(large())


def test_leaving_a_sweep_leaves_nothing_on_the_cluster(local: distributed.Client) -> None:
    sweep = large(client=local)
    next(iter(sweep))
    sweep.close()
    end = time.monotonic() + 30
    while local.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def local() -> Iterator[distributed.Client]:
    # A run that dies is not tried again, which keeps this short.
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def raising(error: BaseException, mark: Path, times: int) -> Any:
    """Does a task, but raises so many times before, if it is one of `vellum`. Made here, so that it goes to a worker whole."""

    def does(task: Task) -> Answer:
        import os

        if task.policy == "vellum" and len(list(mark.iterdir())) < times:
            (mark / os.urandom(8).hex()).touch()
            raise error
        return do(task)

    return does


@pytest.mark.parametrize("error", [MemoryError("no room"), OSError(28, "No space left on device")])
def test_a_run_that_raises_is_tried_again(
    local: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(vellum.workers, "do", raising(error, tmp_path, 2))
    sweep = vellum.sweep("zipf", "oftl", ["base", "vellum"], client=local, **SHORT)
    assert not sweep.failed and len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(vellum.workers, "do", raising(error, tmp_path, 9))
    (failed,) = vellum.sweep("zipf", "oftl", ["base", "vellum"], client=local, retries=1, **SHORT).failed
    assert failed.point["policy"] == "vellum"
    assert failed.why == f"{type(error).__name__}: {error} (tried 2 times)"


def test_no_two_sweeps_give_a_run_the_same_name() -> None:
    names = []

    class Client:
        status = "running"

        def submit(self, *_: object, key: str, **__: object) -> None:
            names.append(key)
            raise InterruptedError

        def cancel(self, _: object) -> None:
            pass

    for _ in range(20):
        with pytest.raises(InterruptedError):
            list(vellum.workers.there(Client(), {"a": None}, 0))
    assert len(set(names)) == 20


def test_a_run_that_kills_its_workers_fails_and_the_others_go_on(
    local: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kills(task: Task) -> Answer:
        import os

        if task.policy == "vellum":
            os.kill(os.getpid(), 9)
        return do(task)

    monkeypatch.setattr(vellum.workers, "do", kills)
    sweep = vellum.sweep("zipf", "oftl", ["base"], client=local, **SHORT)
    assert not sweep.failed
    (failed,) = vellum.sweep("zipf", "oftl", ["vellum"], client=local, **SHORT).failed
    assert "its workers died, one after the other" in failed.why


def test_a_worker_of_another_build_is_an_error(local: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(task: Task) -> Answer:
        raise WrongEngine("another build")

    monkeypatch.setattr(vellum.workers, "do", other)
    with pytest.raises(vellum.RunError, match="another build"):
        list(vellum.sweep("zipf", "oftl", "base", client=local, retries=0, **SHORT))
    monkeypatch.undo()
    monkeypatch.setattr("vellum.task.engine", lambda: "0" * 64)
    with pytest.raises(vellum.RunError, match="a worker has another build of vellum than this process"):
        list(vellum.sweep("zipf", "oftl", "base", client=local, **SHORT))


def test_a_worker_without_the_package_is_an_error(local: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(task: Task) -> Answer:
        raise ModuleNotFoundError("No module named 'vellum'", name="vellum")

    monkeypatch.setattr(vellum.workers, "do", none)
    with pytest.raises(vellum.RunError, match="a worker has no package vellum: install the wheel"):
        list(vellum.sweep("zipf", "oftl", "base", client=local, retries=0, **SHORT))


def test_a_trace_that_a_worker_cannot_see_is_named(local: distributed.Client, requests: Path) -> None:
    for load in (requests, {"both": {"one": requests, "two": requests}}):
        seen = vellum.sweep(load, "oftl", "base", client=local, capacity="256M", op=28)
        assert text(seen) == text(vellum.sweep(load, "oftl", "base", capacity="256M", op=28)) and not seen.failed
    moved = requests.with_name("other.csv")
    moved.write_text(requests.read_text() + requests.read_text())
    unseen = vellum.sweep(moved, "oftl", "base", client=local, capacity="256M", op=28)
    moved.unlink()
    (failed,) = unseen.failed
    assert "other.csv is not there for this worker: put it in a folder that all machines see" in failed.why


def test_own_policies_go_to_workers(local: distributed.Client) -> None:
    rest = 2000

    def rested(blocks: vellum.Closed) -> Any:
        return (blocks.valid + blocks.pages * (blocks.age < rest)).argmin()

    def both(**more: Any) -> vellum.Sweep:
        policies = ["base", vellum.Policy("rested", victim=rested)]
        return vellum.sweep("zipf", "oftl", policies, vary={"depth": [1, 8]}, **{**LONG, **more})

    sweep = both(client=local)
    assert not sweep.failed and text(sweep) == text(both())
    assert len(set(sweep.figures["written_moved"])) == 2

    def tired(_blocks: vellum.Closed) -> int:
        raise ArithmeticError("no more")

    (failed,) = vellum.sweep("zipf", "oftl", vellum.Policy("tired", victim=tired), client=local, retries=1, **LONG).failed
    assert failed.point["policy"] == "tired" and failed.why == "ArithmeticError: no more (tried 2 times)"


def test_a_cluster_that_was_cancelled_is_asked_again(local: distributed.Client) -> None:
    sweep = large(client=local)
    for number, _ran in enumerate(sweep):
        if number == 1:
            local.restart()
    assert text(sweep) == text(large())


def test_an_invalid_client_is_refused() -> None:
    with pytest.raises(vellum.OptionError, match="client is a dask.distributed.Client"):
        vellum.sweep("zipf", "oftl", "base", client=7, **SHORT)
