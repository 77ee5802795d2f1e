"""Fleets: what a policy does to the replacements of many drives, of different ages and under different loads."""

from __future__ import annotations

import hashlib
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from . import _lab
from .axes import Tasks, once, several
from .load import DriveLike, whole
from .options import Options
from .own import PolicyLike, label
from .progress import Progress
from .sweep import RETRIES, Ran, Sweep, plan, table_of, told
from .table import Table

Numbers = npt.NDArray[np.float64]

RESAMPLED = 1000
"""How often a fleet is drawn again, to see how sure a figure is."""
DAYS = 365.25
BLOCK_BYTES = 4096


@dataclass(frozen=True)
class Group:
    """Drives of one kind, under one load."""

    name: str
    drives: int
    """How many."""
    load: Any
    """As `vellum.run` takes it, or a pair of that and its own options."""
    writes_per_day: float
    """Drive writes a day (DWPD): of the half of the drives more is written, of the other half less."""
    drive: DriveLike = "tlc-nvme"
    spread: float = 0.0
    """How much that differs between drives: the standard deviation of its logarithm. With 0.5 one in six gets 1.65 times as much or more."""
    ages: tuple[float, float] = (0.0, 0.0)
    """Years in service, from the youngest to the oldest; drives are spread evenly between them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other options of its runs."""


class Fleet:
    """What is expected of a fleet. `low` and `high` are the ends of an interval in which a figure lies 19 times in 20."""

    replacements: Table
    """By policy: drives that are replaced in a year, in the mean of all years, and how many fewer that is than under the first policy."""

    by_year: Table
    """By policy and year from now on."""

    by_group: Table
    """By group and policy, with the years in which the median drive wears out a new one."""

    drives: Table
    """A row for each drive: its group, age, writes a day, how worn it is (of 1), and the years that a new one would last by policy."""

    runs: list[Ran]
    """What was run."""

    warnings: list[str]
    """What speaks against the figures."""

    def __repr__(self) -> str:
        of = self.replacements
        each = (
            f"{policy} {mean:.1f} ({low:.1f} to {high:.1f})"
            for policy, mean, low, high in zip(of["policy"], of["a_year"], of["low"], of["high"])
        )
        return f"<vellum.Fleet: {self.drives.rows} drives, replacements a year: {', '.join(each)}>"


def fleet(
    groups: Sequence[Group],
    policies: Sequence[PolicyLike],
    *,
    years: int = 5,
    repeats: int = 5,
    client: Any = None,
    threads: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    retries: int = RETRIES,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Fleet:
    """Estimates how many drives of a fleet are replaced in the next `years` under each policy.

    Runs each group's load under each policy, `repeats` times with different seeds. The result is how much the flash endures, in drive
    writes. Each drive gets a random age, and a random number of writes a day. Until now it has worn under the first policy; from now on it
    wears under each of them. When it is worn out, a new drive of the same kind replaces it.

    The intervals come from a bootstrap: drives and repetitions are drawn again, the same ones for all policies. The option `seed` (by
    default 1) decides everything that is drawn: the same call gives the same figures, wherever it runs. `client`, `cache`, `retries`, `threads`,
    `progress` and the other `options` are as in `vellum.sweep`.
    """
    of_all: dict[str, Any] = dict(options)
    seed = of_all.pop("seed", 1)
    for name, number, least in (("years", years, 1), ("repeats", repeats, 2), ("seed", seed, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise _lab.OptionError(f"{name} is a whole number from {least} on, not {number!r}")
    kinds = [_checked(group) for group in several("groups", groups)]
    given = several("policies", policies)
    names = [label(policy) for policy in given]
    once("groups", [group.name for group in kinds])
    once("policies", names)
    points, tasks, maker = [], [], Tasks()
    for group in kinds:
        own = whole(group.drive)
        if "seed" in group.options:
            raise _lab.OptionError(f"group {group.name}: seed is the fleet's")
        if both := sorted(group.options.keys() & of_all.keys()):
            raise _lab.OptionError(f"group {group.name}: {', '.join(both)}: of the group and of all: give it once")
        for policy, name in zip(given, names):
            for repeat in range(repeats):
                point = {"group": group.name, "policy": name, "repeat": repeat}
                of_run = {**of_all, **group.options, "seed": _number(seed, f"run {repeat}") % 2**32}
                points.append(point)
                try:
                    tasks.append(maker.task((group.name, group.load), own, policy, of_run))
                except _lab.Error as error:
                    raise type(error)(f"{error} (in the run {told(point)})") from None
    sweep = Sweep(points, plan(tasks, client, cache, retries, threads), maker, progress, "fleet")
    runs = {tuple(ran.point.values()): ran for ran in sweep}
    return _told(kinds, names, [runs[tuple(point.values())] for point in points], (years, repeats, seed))


def _checked(group: Any) -> Group:
    if not isinstance(group, Group):
        raise _lab.OptionError(f"groups: each is a vellum.Group, not {group!r}")
    if not isinstance(group.name, str):
        raise _lab.OptionError(f"group {group.name!r}: a name is a text")
    at = f"group {group.name}"
    if isinstance(group.drives, bool) or not isinstance(group.drives, int) or group.drives < 1:
        raise _lab.OptionError(f"{at}: drives is a whole number from 1 on, not {group.drives!r}")
    _within(f"{at}: writes_per_day", group.writes_per_day, 1e-6, 1e3)
    _within(f"{at}: spread", group.spread, 0, 3)
    if not isinstance(group.ages, tuple) or len(group.ages) != 2:
        raise _lab.OptionError(f"{at}: ages are a pair of years, the youngest's and the oldest's, not {group.ages!r}")
    for age in group.ages:
        _within(f"{at}: ages", age, 0, 100)
    if group.ages[0] > group.ages[1]:
        raise _lab.OptionError(f"{at}: ages: {group.ages[0]} is more than {group.ages[1]}")
    if not isinstance(group.options, Mapping):
        raise _lab.OptionError(f"{at}: options are a dictionary, not {group.options!r}")
    return group


def _within(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise _lab.OptionError(f"{name}: a number from {least:g} to {most:g}, not {value!r}")


def _number(seed: int, what: str) -> int:
    """A separate number for each thing that is drawn."""
    return int.from_bytes(hashlib.sha256(f"{seed}: {what}".encode()).digest()[:16], "big")


class _Draws:
    """Draws that are the same in each version of NumPy, which promises that of the raw bits alone."""

    def __init__(self, seed: int, what: str) -> None:
        self._bits = np.random.PCG64(_number(seed, what))

    def even(self, count: int) -> Numbers:
        """Between 0 and 1, without the ends."""
        high = (self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64)
        out: Numbers = (high + 0.5) * 2.0**-53
        return out

    def normal(self, count: int) -> Numbers:
        inverse = statistics.NormalDist().inv_cdf
        return np.array([inverse(draw) for draw in self.even(count)])

    def among(self, most: int, count: int) -> npt.NDArray[np.int64]:
        """How often each of `most` things is drawn, in `count` draws."""
        drawn = (self.even(count) * most).astype(np.int64)
        return np.bincount(drawn, minlength=most)


@dataclass
class _Drawn:
    """A group's drives, and what becomes of them."""

    group: Group
    ages: Numbers
    writes: Numbers
    worn: Numbers
    """By drive and repetition."""
    lives: Numbers
    """Years that a new one lasts, by policy, drive and repetition."""
    replaced: Numbers
    """By drive, repetition, policy and year."""


def _draw(group: Group, endured: Numbers, years: int, seed: int) -> _Drawn:
    """`endured` are drive writes, by policy and repetition."""
    draws = _Draws(seed, f"drives of {group.name}")
    youngest, oldest = group.ages
    ages = youngest + draws.even(group.drives) * (oldest - youngest)
    writes = group.writes_per_day * np.exp(group.spread * draws.normal(group.drives))
    lives = endured[:, None, :] / (writes[None, :, None] * DAYS)
    # What wore out before has been replaced already.
    worn = (ages[:, None] / lives[0]) % 1.0
    first = (1.0 - worn)[None] * lives
    until = np.stack([np.maximum(np.floor((year - first) / lives) + 1, 0) for year in range(years + 1)])
    replaced = np.diff(until, axis=0).transpose(2, 3, 1, 0)
    return _Drawn(group, ages, writes, worn, lives, replaced)


def _endured(runs: Sequence[Ran], policies: int, repeats: int) -> Numbers:
    """Drive writes that a new drive endures, by policy and repetition."""
    out, volume = [], 0
    for ran in runs:
        at = told(ran.point)
        if ran.outcome is None:
            raise _lab.RunError(f"{at}: {ran.why}")
        life = ran.outcome.details["life"]
        if life is None or life["endurance_bytes"] is None:
            why = "; ".join(ran.outcome.details["notes"]).replace("--", "")
            raise _lab.RunError(f"{at}: the run tells no life: {why}")
        # One volume for all policies, so that equal drive writes are equal bytes.
        volume = volume or ran.outcome.details["logical_blocks"]
        out.append(life["endurance_bytes"] / (volume * BLOCK_BYTES))
    return np.array(out).reshape(policies, repeats)


def _warnings(runs: Sequence[Ran]) -> list[str]:
    """The reasons to doubt the figures, each once."""
    out: dict[str, None] = {}
    for ran in runs:
        assert ran.outcome is not None
        at = f"{ran.point['group']} under {ran.point['policy']}"
        out |= {f"{at}: {warning}": None for warning in ran.outcome.warnings}
        if ran.outcome["settled"] is False:
            out[f"{at}: a run had not settled: a longer one may show another life"] = None
    return list(out)


def _told(groups: list[Group], policies: list[str], runs: list[Ran], said: tuple[int, int, int]) -> Fleet:
    years, repeats, seed = said
    out = Fleet()
    out.runs = runs
    each = len(policies) * repeats
    drawn = [
        _draw(group, _endured(runs[at * each : (at + 1) * each], len(policies), repeats), years, seed)
        for at, group in enumerate(groups)
    ]
    out.warnings = _warnings(runs)
    # By group, policy and year; in `again` the first axis is the redrawn fleet.
    mean = np.stack([of.replaced.sum(axis=(0, 1)) for of in drawn]) / repeats
    again = np.stack([_again(of, repeats, seed) for of in drawn], axis=1)
    out.replacements = _by_policy(policies, mean.sum(axis=0), again.sum(axis=1))
    rows = [
        {"policy": policy, "year": year + 1, "replacements": total, "low": low, "high": high}
        for at, policy in enumerate(policies)
        for year in range(years)
        for total, low, high in [_sure(mean[:, at, year].sum(), again[:, :, at, year].sum(axis=1))]
    ]
    out.by_year = table_of(rows)
    out.by_group = table_of(
        [
            {"group": of.group.name, "drives": of.group.drives, "policy": policy}
            | dict(zip(("a_year", "low", "high"), _sure(mean[number, at].mean(), again[:, number, at].mean(axis=1))))
            | {"years_median": float(np.median(of.lives[at]))}
            for number, of in enumerate(drawn)
            for at, policy in enumerate(policies)
        ]
    )
    out.drives = Table(
        group=np.concatenate([np.full(of.group.drives, of.group.name, dtype=object) for of in drawn]),
        age=np.concatenate([of.ages for of in drawn]),
        writes_per_day=np.concatenate([of.writes for of in drawn]),
        worn=np.concatenate([of.worn.mean(axis=1) for of in drawn]),
    )
    for at, policy in enumerate(policies):
        out.drives[f"years {policy}"] = np.concatenate([of.lives[at].mean(axis=1) for of in drawn])
    return out


def _again(of: _Drawn, repeats: int, seed: int) -> Numbers:
    """Replacements by policy and year, for each new draw of drives and repetitions.

    All are sums of whole numbers, so they are the same in whatever order a machine adds them.
    """
    draws = _Draws(seed, f"again, of {of.group.name}")
    drives = of.group.drives
    shape = of.replaced.shape[2:]
    flat = of.replaced.reshape(drives, -1)
    out = np.empty((RESAMPLED, *shape))
    for time in range(RESAMPLED):
        by_repeat = (draws.among(drives, drives) @ flat).reshape(repeats, -1)
        out[time] = (draws.among(repeats, repeats) @ by_repeat).reshape(shape) / repeats
    return out


def _sure(figure: float, again: Numbers) -> tuple[float, float, float]:
    low, high = np.percentile(again, [2.5, 97.5])
    return float(figure), float(low), float(high)


def _by_policy(policies: list[str], mean: Numbers, again: Numbers) -> Table:
    """`mean` is by policy and year; `again` has one more axis in front."""
    first, first_again = mean[0].mean(), again[:, 0].mean(axis=1)
    rows = []
    for at, policy in enumerate(policies):
        own, own_again = mean[at].mean(), again[:, at].mean(axis=1)
        row: dict[str, str | float] = {"policy": policy}
        row["a_year"], row["low"], row["high"] = _sure(own, own_again)
        row["fewer"], row["fewer_low"], row["fewer_high"] = _sure(first - own, first_again - own_again)
        row["fewer_percent"] = 100 * (first - own) / first if first > 0 else math.nan
        rows.append(row)
    return table_of(rows)
