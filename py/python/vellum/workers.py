"""The workers: threads of this process, or a cluster of Dask. Both give the same answers."""

from __future__ import annotations

import asyncio
import importlib.util
import queue
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent import futures
from typing import Any

from . import _lab
from .task import Answer, Task, WrongEngine, do

Done = tuple[str, Answer]
"""A task's key, and what came of it."""

LOOK = 0.5
"""Seconds between two looks at whether the scheduler is still there."""


LOST_MOST = 5
"""How often a task is asked for again that was cancelled, or whose scheduler was lost."""


class _Stopped(Exception):
    """The caller no longer waits."""


def here(tasks: Mapping[str, Task], threads: int, retries: int) -> Iterator[Done]:
    """Does the tasks in this process. Yields each answer when it is there."""
    over = threading.Event()

    def heed(_done: int, _all: int) -> None:
        if over.is_set():
            raise _Stopped

    def one(task: Task) -> Answer:
        for left in range(retries, -1, -1):
            try:
                return do(task, heed)
            except _Stopped:
                raise
            except Exception as error:
                if left == 0:
                    return Answer(None, _raised(error, retries))
        raise AssertionError

    pool = futures.ThreadPoolExecutor(threads, "vellum")
    try:
        going = {pool.submit(one, task): key for key, task in tasks.items()}
        for done in futures.as_completed(going):
            yield going[done], done.result()
    finally:
        over.set()
        pool.shutdown(cancel_futures=True)


def there(client: Any, tasks: Mapping[str, Task], retries: int) -> Iterator[Done]:
    """Does the tasks on a cluster. Yields each answer when it is there.

    If a worker dies, Dask gives its task to another one. A task that raises is tried again, `retries` times. If the scheduler is lost, a
    client of Dask looks for it for a while. If it is found, the tasks that are not done are submitted again.
    """
    done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    going: dict[str, Any] = {}
    lost: dict[str, int] = {}
    sweep, asked = uuid.uuid4().hex, 0

    def ask(key: str) -> None:
        nonlocal asked
        # A new name each time, unlike any other sweep's: for a name that Dask knows, it returns the known result.
        asked += 1
        name = f"vellum-{key[:16]}-{sweep}-{asked}"
        future = client.submit(do, tasks[key], key=name, retries=retries, pure=False)
        going[key] = future
        future.add_done_callback(lambda future: done.put((key, future)))

    try:
        _find(client, len(tasks))
        for key in tasks:
            ask(key)
        while going:
            try:
                key, future = done.get(timeout=LOOK)
            except queue.Empty:
                _find(client, len(going))
                continue
            if going.get(key) is not future:
                continue
            answer = _answer(future, retries)
            if answer is None and lost.get(key, 0) == LOST_MOST:
                answer = Answer(None, f"Dask has lost it {LOST_MOST + 1} times")
            if answer is None:
                lost[key] = lost.get(key, 0) + 1
                _find(client, len(going))
                ask(key)
                continue
            del going[key]
            yield key, answer
    finally:
        if client.status == "running":
            client.cancel(list(going.values()))


def _answer(future: Any, retries: int) -> Answer | None:
    """The answer to a task; none if Dask has lost it."""
    from distributed import KilledWorker

    try:
        answer: Answer = future.result()
        return answer
    except (Exception, asyncio.CancelledError) as error:
        # It was cancelled, or the connection broke while its result was on the way.
        if future.status != "error":
            return None
        if isinstance(error, WrongEngine):
            raise _lab.RunError(str(error)) from None
        if isinstance(error, ModuleNotFoundError) and error.name == "vellum":
            raise _lab.RunError("a worker has no package vellum: install the wheel where workers run") from error
        if isinstance(error, KilledWorker):
            return Answer(None, f"its workers died, one after the other, perhaps for want of memory: {error}")
        return Answer(None, _raised(error, retries))


def _find(client: Any, left: int) -> None:
    """Waits until the client has found its scheduler, or has given up."""
    while client.status == "connecting":
        time.sleep(LOOK / 10)
    if client.status != "running":
        raise _lab.RunError(
            f"the scheduler is lost (the client is {client.status}), with {left} runs to go: "
            "do the same with another client; what the cache has is not run again"
        )


def _raised(error: BaseException, retries: int) -> str:
    return f"{type(error).__name__}: {error} (tried {retries + 1} times)"


def checked(client: Any) -> Any:
    """The client, if it can be used; raises if not. `None` stays `None`."""
    if client is None:
        return None
    if importlib.util.find_spec("distributed") is None:
        raise _lab.OptionError("a client needs Dask: pip install 'vellum[dask]'")
    from distributed import Client

    if not isinstance(client, Client):
        raise _lab.OptionError(f"client is a dask.distributed.Client, not {client!r}")
    if client.asynchronous:
        raise _lab.OptionError("client is asynchronous: give one that is not (asynchronous=False)")
    return client
