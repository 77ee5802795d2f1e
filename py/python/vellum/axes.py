"""The drives, loads, policies and options of a sweep, as the caller gives them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from . import _lab
from . import options as vellum_options
from .drives import Drive
from .jobs import Jobs
from .load import OF_THE_TRACE, Load, Tenants, loads
from .own import Policy, label
from .task import Task, task
from .trace import Trace, trace

Options = dict[str, Any]


def several(name: str, values: Any) -> list[Any]:
    """One or several values as a list that is not empty."""
    if isinstance(values, (str, os.PathLike, Drive, Trace, Jobs, Policy)):
        return [values]
    if not isinstance(values, Iterable) or isinstance(values, (bytes, Mapping)):
        raise _lab.OptionError(f"{name}: they are a list, not {values!r}")
    out = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not out:
        raise _lab.OptionError(f"{name}: the list is empty, so there is nothing to run")
    return out


def once(name: str, labels: list[Any]) -> None:
    """True if no value is there twice."""
    for label in labels:
        if labels.count(label) > 1:
            raise _lab.OptionError(f"{name}: {label!r} is there twice")


def named(what: Any) -> list[tuple[str, Any]]:
    """Loads, each with its name."""
    if isinstance(what, Mapping):
        for name in what:
            if not isinstance(name, str):
                raise _lab.OptionError(f"loads: a name is a text, not {name!r}")
        return several("loads", list(what.items()))
    return [(_name(load), load) for load in several("loads", what)]


def _name(load: Any) -> str:
    if isinstance(load, Trace):
        return load.path.name
    if isinstance(load, Jobs):
        return load.name
    if isinstance(load, os.PathLike) or (isinstance(load, str) and load not in loads()):
        return os.path.basename(load)
    if isinstance(load, str):
        return load
    raise _lab.OptionError(f"a load is a name, a path, a vellum.Trace or a vellum.Jobs, not {load!r}; one with options has a name, in a dictionary")


class Tasks:
    """Makes tasks. Each trace is read once."""

    def __init__(self) -> None:
        self.read: dict[Any, Trace] = {}

    def task(self, load: tuple[str, Any], drive: Any, policy: Any, options: Mapping[str, Any]) -> Task:
        """The task of a load, which may have options of its own."""
        label(policy)
        name, what = load
        own: Mapping[str, Any] = {}
        if isinstance(what, tuple):
            if len(what) != 2 or not isinstance(what[1], Mapping):
                raise _lab.OptionError(f"load {name}: it is a load, or one and its options as a dictionary, not {what!r}")
            what, own = what
        if both := sorted(own.keys() & options.keys()):
            raise _lab.OptionError(f"load {name}: {', '.join(both)}: its own option, and one of all runs: give it once")
        mine: Options = {**options, **own}
        return task(self._load(what, mine), drive, policy, cast(vellum_options.Options, mine))

    def _load(self, what: Any, options: Options) -> Load | Tenants:
        """The load; a trace that was read, or several, if it is one. `options` lose those that say how it is read."""
        if isinstance(what, Mapping):
            return self._tenants(what, options)
        if isinstance(what, Trace):
            self.read[id(what)] = what
            return what
        if not isinstance(what, (str, os.PathLike)) or what in loads() or not os.path.exists(what):
            load: Load = what
            return load
        return self._read(what, {option: options.pop(option) for option in OF_THE_TRACE if option in options})

    def _tenants(self, what: Mapping[str, Any], options: Options) -> Tenants:
        how = {option: options[option] for option in OF_THE_TRACE if option in options}
        out = {}
        for name, of in what.items():
            if isinstance(of, Trace):
                self.read[id(of)] = of
            is_path = isinstance(of, (str, os.PathLike)) and os.path.exists(of)
            out[name] = self._read(of, how) if is_path else of
        # If one was read before, they are too late for it, and whoever looks at the options says so.
        if not any(isinstance(of, Trace) for of in what.values()):
            for option in how:
                del options[option]
        return out

    def _read(self, path: str | os.PathLike[str], how: Options) -> Trace:
        known = (os.fspath(path), *sorted(how.items()))
        if known not in self.read:
            self.read[known] = trace(path, **how)
        return self.read[known]
