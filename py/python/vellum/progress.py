"""How far something has come: told to a function, or shown as a bar or a line."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from . import _lab

Progress = bool | Callable[[int, int], object]
"""True shows a bar; a function is called with what is done, and all there is (0 if that is not known yet)."""


class Shown:
    """A bar of tqdm if it is installed, which a notebook shows as its own; otherwise a line on standard error."""

    def __init__(self, what: str, unit: str) -> None:
        self._show = (_Bar if importlib.util.find_spec("tqdm") else _Line)(what, unit)
        self._all = 0

    def __call__(self, done: int, all: int) -> None:
        self._all = all
        self._show.tell(done, all)

    def end(self, whole: bool) -> None:
        """Ends it, as complete or not."""
        if whole and self._all:
            self._show.tell(self._all, self._all)
        self._show.close()


class _Bar:
    def __init__(self, what: str, unit: str) -> None:
        with warnings.catch_warnings():
            # In a notebook without widgets it is a bar of text.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]

            self._bar: Any = tqdm(desc=what, unit=f" {unit}", unit_scale=unit != "runs")

    def tell(self, done: int, all: int) -> None:
        bar = self._bar
        if all and bar.total != all:
            # A disabled bar (TQDM_DISABLE=1) has no times.
            began, known = getattr(bar, "start_t", None), bar.total
            # A notebook's bar takes a new length only so. The time counts from the first length on: nothing was served before.
            bar.reset(all)
            if known:
                bar.start_t = began
        bar.update(done - bar.n)

    def close(self) -> None:
        self._bar.close()


class _Line:
    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit, self._told = what, unit, ""

    def tell(self, done: int, all: int) -> None:
        said = f"{self._what}: {100 * done // all}% of {all} {self._unit}" if all else f"{self._what}: preparing"
        if said != self._told:
            sys.stderr.write(f"\r{said.ljust(len(self._told))}")
            sys.stderr.flush()
            self._told = said

    def close(self) -> None:
        if self._told:
            sys.stderr.write("\n")


def valid(progress: Progress | None) -> Progress | None:
    """The same, if it is one of these."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise _lab.OptionError(f"progress is True, or a function of two numbers, not {progress!r}")
    return progress


def to_tell(progress: Progress | None, what: str, unit: str) -> Shown | Callable[[int, int], object] | None:
    """What is told how far it has come, if anything is."""
    if isinstance(progress, bool):
        return Shown(what, unit) if progress else None
    valid(progress)
    return progress


@contextlib.contextmanager
def followed(progress: Progress | None, what: str, unit: str) -> Iterator[_lab.Progress | None]:
    """The same for as long as something is done. A bar ends with it."""
    to = to_tell(progress, what, unit)
    whole = False
    try:
        yield to
        whole = True
    finally:
        if isinstance(to, Shown):
            to.end(whole)
