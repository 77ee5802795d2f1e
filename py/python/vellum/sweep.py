"""Sweeps: every drive with every load under every policy, here or on a cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from . import _lab
from .axes import Tasks, named, once, several
from .cache import Cache
from .load import DriveLike, Load, whole
from .options import Options
from .outcome import Outcome
from .own import PolicyLike, label
from .progress import Progress, followed, valid
from .table import Table, column
from .task import Answer, Task
from .workers import checked, here, there

Point = dict[str, Any]
"""Where in a sweep a run is: its drive, its load, its policy and what else varies, by name."""

RETRIES = 2


class Ran(NamedTuple):
    """One run of a sweep."""

    point: Point
    """Which it is: `drive`, `load`, `policy` and what else varies."""
    outcome: Outcome | None
    """What it showed; `None` if it failed."""
    why: str
    """Why it failed."""
    kept: bool
    """Whether it was in the cache."""


class Plan(NamedTuple):
    """Tasks and who does them. Each sweep has one, and each fleet."""

    tasks: Sequence[Task]
    client: Any
    threads: int
    cache: Cache | None
    retries: int

    def answers(self) -> Iterator[tuple[int, Answer, bool]]:
        """Yields for each task, as it is done: its place, its answer, and whether that came from the cache. Equal tasks are done once."""
        places: dict[str, list[int]] = {}
        for place, of in enumerate(self.tasks):
            places.setdefault(of.key, []).append(place)
        left = {}
        for key, among in places.items():
            of = self.tasks[among[0]]
            kept = None if self.cache is None else self.cache.get(of)
            if kept is None:
                left[key] = of
                continue
            for place in among:
                yield place, kept, True
        if not left:
            return
        if self.client is None:
            done = here(left, self.threads, self.retries)
        else:
            done = there(self.client, left, self.retries)
        for key, answer in done:
            if self.cache is not None:
                self.cache.put(left[key], answer)
            for place in places[key]:
                yield place, answer, False


def plan(
    tasks: Sequence[Task],
    client: Any,
    cache: str | os.PathLike[str] | None,
    retries: int,
    threads: int | None,
) -> Plan:
    """A plan of options as a user gives them."""
    for name, number, least in (("retries", retries, 0), ("threads", 1 if threads is None else threads, 1)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise _lab.OptionError(f"{name} is a number from {least} on, not {number!r}")
    kept = None if cache is None else Cache(cache)
    return Plan(tasks, checked(client), threads or os.cpu_count() or 1, kept, retries)


class Sweep(Iterable[Ran]):
    """A sweep. Iterate over it to get each run as it is done, or ask for `figures`, which waits for all.

    It begins when the first run is asked for. You may stop iterating and continue later, or close it.
    """

    def __init__(
        self,
        points: Sequence[Point],
        plan: Plan,
        maker: Tasks,
        progress: Progress | None,
        what: str = "sweep",
    ) -> None:
        # Kept because some traces have a folder that is removed with them.
        self._maker = maker
        self._points, self._plan = points, plan
        self._done: dict[int, Ran] = {}
        self._tell: _lab.Progress | None = None
        self._going = self._answers(valid(progress), what)

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[Ran]:
        """The runs, as they are done. Those that are done already come first."""
        seen = 0
        while True:
            # In the order in which they ended.
            for ran in list(self._done.values())[seen:]:
                seen += 1
                yield ran
            if seen == len(self._done) and not self._next():
                return

    def _answers(self, progress: Progress | None, what: str) -> Iterator[tuple[int, Answer, bool]]:
        """What the plan yields. A bar of the progress is there as long as this is."""
        with followed(progress, what, "runs") as self._tell:
            yield from self._plan.answers()

    def _next(self) -> bool:
        for place, answer, kept in self._going:
            outcome = None if answer.result is None else answer.outcome
            self._done[place] = Ran(self._points[place], outcome, answer.why, kept)
            if self._tell is not None:
                self._tell(len(self._done), len(self))
            return True
        if len(self._done) < len(self):
            raise _lab.RunError("the sweep was closed, or has failed: begin it again; what the cache has is not run again")
        return False

    def _all(self) -> list[Ran]:
        for _ in self:
            pass
        return [self._done[place] for place in range(len(self))]

    def close(self) -> None:
        """Ends it: runs that have not begun are left out."""
        self._going.close()  # type: ignore[attr-defined]

    @property
    def figures(self) -> Table:
        """The figures of all runs, a row each, in the order of the sweep and not of time, without those that failed."""
        return table_of([{**ran.point, **_others(ran)} for ran in self._all() if ran.outcome is not None])

    @property
    def failed(self) -> list[Ran]:
        """The runs that failed, with the reason."""
        return [ran for ran in self._all() if ran.outcome is None]

    def to_pandas(self) -> Any:
        """The figures as a `pandas.DataFrame`."""
        return self.figures.to_pandas()

    def __repr__(self) -> str:
        return f"<vellum.Sweep: {len(self._done)} of {len(self)} runs done>"


def _others(ran: Ran) -> Mapping[str, Any]:
    assert ran.outcome is not None
    return {name: figure for name, figure in ran.outcome.items() if name not in ran.point}


def told(point: Point) -> str:
    """Where a run is, in words."""
    return ", ".join(f"{axis}={label}" for axis, label in point.items())


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of rows. Its columns are all that any row has."""
    names = dict.fromkeys(name for row in rows for name in row)
    return Table((name, column([row.get(name) for row in rows])) for name in names)


def sweep(
    loads: Load | Sequence[Load] | Mapping[str, Any],
    drives: DriveLike | Sequence[DriveLike] = "tlc-nvme",
    policies: PolicyLike | Sequence[PolicyLike] = "vellum",
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    client: Any = None,
    threads: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    retries: int = RETRIES,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Sweep:
    """Runs every load on every drive under every policy, with each value of the options in `vary`.

    `loads` may be a dictionary of names and loads; a load is then also a pair of one and its own options:
    `{"hot": ("zipf", {"theta": 1.2}), "even": "uniform"}`; or the traces of tenants by name: `{"both": {"mail": "mail.csv", "web": "web.csv"}}`.
    `vary` has options with their values: `{"op": [7, 28], "seed": [1, 2, 3]}`.
    The other `options` hold for all runs, as in `vellum.run`. `policies` may be `vellum.Policy` of your own: each run gets a copy of their
    functions, made by cloudpickle.

    All runs are checked before the first one begins. `client`, a `dask.distributed.Client`, runs them on its cluster; without it,
    threads of this process do. The results are the same. `cache` is a folder that keeps results: what is there is not run again.
    A result's key is everything that it depends on: options, policy, the contents of the trace, the drive's file, the build of this package.
    A run that raises, or whose worker dies, is tried again (`retries`). A run that the lab refuses is in `failed`.
    `progress=True` shows a bar; a function is called with the number of finished runs, and the number of all.

    Raises `OptionError`, `TraceError` or `RunError`, which say what to do.
    """
    axes: dict[str, list[tuple[Any, Any]]] = {
        "drive": [(own.name, own) for own in map(whole, several("drives", drives))],
        "load": list(named(loads)),
        "policy": [(label(policy), policy) for policy in several("policies", policies)],
    }
    for name, values in (vary or {}).items():
        if name in axes:
            raise _lab.OptionError(f"vary: {name} has a parameter of its own")
        if name in options:
            raise _lab.OptionError(f"vary: {name} has a value for all runs as well: give it once")
        axes[name] = [(value, value) for value in several(f"vary: {name}", values)]
    for axis, among in axes.items():
        once(axis, [label for label, _ in among])
    points, tasks, maker = [], [], Tasks()
    for chosen in itertools.product(*axes.values()):
        point = {axis: label for axis, (label, _) in zip(axes, chosen)}
        (_, drive), load, (_, policy), *_ = chosen
        more = {name: value for name, value in point.items() if name not in ("drive", "load", "policy")}
        points.append(point)
        try:
            tasks.append(maker.task(load, drive, policy, {**options, **more}))
        except _lab.Error as error:
            raise type(error)(f"{error} (in the run {told(point)})") from None
    return Sweep(points, plan(tasks, client, cache, retries, threads), maker, progress)
