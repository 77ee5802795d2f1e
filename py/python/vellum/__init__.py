"""The lab of Vellum from Python: SSDs, loads, traces and policies in virtual time.

    import vellum

    outcome = vellum.run("zipf", drive="emmc", policy="base:cost-benefit")
    outcome.write_amplification
    outcome.steps.to_pandas()

    vellum.compare("trace.csv.gz", drive="tlc-nvme").figures.to_pandas()

A run is what `vellum lab run` of the same options is, to the last digit. It is served by native code on a thread of its
own: other Python threads go on meanwhile, and Ctrl-C ends it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Unpack

from . import _lab
from ._lab import Error, OptionError, RunError, TraceError
from .drives import Drive, drive, drives
from .options import Options
from .outcome import Comparison, Outcome, comparison
from .table import Table
from .trace import Trace, trace, trace_of
from .victim import Closed, Victim, asked
from .words import words

__all__ = [
    "Closed",
    "Comparison",
    "Drive",
    "Error",
    "OptionError",
    "Options",
    "Outcome",
    "RunError",
    "Table",
    "Trace",
    "TraceError",
    "Victim",
    "compare",
    "drive",
    "drives",
    "loads",
    "policies",
    "run",
    "trace",
    "trace_of",
]

Load = str | os.PathLike[str] | Trace
"""The name of a load, the path of a trace, or a trace that was read."""

OF_THE_TRACE = ("format", "columns", "journal_at", "in_place")
"""Options that say how a trace is read."""


def loads() -> dict[str, str]:
    """The loads that are known by name, and what each is."""
    return dict(_lab.workloads())


def policies() -> str:
    """What the name of a policy may be."""
    return _lab.policies()


def run(
    load: Load,
    drive: str | os.PathLike[str] | Drive = "tlc-nvme",
    policy: str = "vellum",
    *,
    victim: Victim | None = None,
    progress: _lab.Progress | None = None,
    **options: Unpack[Options],
) -> Outcome:
    """Runs a load on a drive under a policy.

    `load` is one of `loads()`, the path of a trace, or a `Trace`. `drive` is one of `drives()`, the path of a drive's
    file, or a `Drive`. `policy` is told by `policies()`. `options` are those of `vellum lab run`, with `_` for `-`:
    `capacity="1G"`, `op=28`, `theta=0.9`, `fcfs=True`; `help(vellum.Options)` tells all. `progress` is called every 100 ms
    with the requests that were served, and how many there are.

    `victim` chooses which block the collector of a page map (`policy="base"`) takes, in place of what the policy says: a
    function of `Closed` to the place of a block. It is slow, and made for ideas: what it raises ends the run.

    Raises `OptionError`, `TraceError` or `RunError`, and says what to do.
    """
    if not isinstance(policy, str):
        raise OptionError(f"a policy is a name, like 'base:cost-benefit', not {policy!r}")
    done = _run(load, drive, [policy], options, 1, progress, victim)
    for name, why in done.failed.items():
        raise RunError(f"{name}: {why}")
    return done[0]


def compare(
    load: Load,
    drive: str | os.PathLike[str] | Drive = "tlc-nvme",
    policies: Sequence[str] = (),
    *,
    threads: int | None = None,
    progress: _lab.Progress | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """Runs a load on a drive under policies, on all cores (or so many `threads`); the results are the same.

    Without policies it takes those that `vellum lab compare` takes. One that cannot be run is in `failed`, with the reason.
    The rest is as in `run`.
    """
    if isinstance(policies, str) or not all(isinstance(policy, str) for policy in policies):
        raise OptionError(f"policies are a list of names, like ['base', 'vellum'], not {policies!r}")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise OptionError(f"threads are a number from 1 on, not {threads!r}")
    done = _run(load, drive, list(policies), options, threads, progress)
    if not done:
        raise RunError("; ".join(f"{name}: {why}" for name, why in done.failed.items()))
    return done


def _run(
    load: Load,
    drive: str | os.PathLike[str] | Drive,
    policies: list[str],
    options: Options,
    threads: int | None,
    progress: _lab.Progress | None,
    victim: Victim | None = None,
) -> Comparison:
    own = None
    said = words(options)
    if isinstance(drive, Drive):
        own = (drive.name, drive.toml)
    elif isinstance(drive, (str, os.PathLike)):
        said.append(f"--device={os.fspath(drive)}")
    else:
        raise OptionError(f"a drive is a name, a path or a vellum.Drive, not {drive!r}")
    if isinstance(load, str) and load in loads():
        read = None
        said.append(f"--workload={load}")
    elif isinstance(load, (str, os.PathLike)):
        if not os.path.exists(load):
            names = ", ".join(loads())
            raise TraceError(f"{os.fspath(load)!r} is neither a trace's file nor a load; loads are {names}")
        read = trace(load, progress=progress, **options)
    elif isinstance(load, Trace):
        read = load
        if late := [name for name in OF_THE_TRACE if name in options]:
            raise OptionError(f"{', '.join(late)}: the trace is read already; say it to vellum.trace")
    else:
        raise OptionError(f"a load is a name, a path or a vellum.Trace, not {load!r}")
    native = None if read is None else read.native
    forms, (about, warnings), failed = _lab.run(
        said, policies, native, own, threads, progress, None if victim is None else asked(victim)
    )
    return comparison(forms, about, warnings, dict(failed))
