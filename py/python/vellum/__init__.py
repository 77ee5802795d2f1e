"""The lab of Vellum from Python: SSDs, loads, traces and policies in virtual time.

    import vellum

    outcome = vellum.run("zipf", drive="emmc", policy="base:cost-benefit")
    outcome.write_amplification
    outcome.steps.to_pandas()

    vellum.compare("trace.csv.gz", drive="tlc-nvme").figures.to_pandas()

A run gives what `vellum lab run` gives with the same options, to the last digit. Native code runs it on a thread of its
own: other Python threads continue meanwhile, and Ctrl-C ends it. In a function of yours that is running, it raises KeyboardInterrupt, as soon as
that is back from what is not Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Unpack

from . import _lab
from ._lab import Error, OptionError, RunError, TraceError
from .admit import Admit, Admitted, Arrived
from .drives import Drive, drive, drives
from .fleet import Fleet, Group, fleet
from .hot import Hot
from .jobs import Jobs, fio
from .load import Load, Tenants, loads, said
from .options import Options
from .outcome import Comparison, Outcome, comparison
from .own import Policy, PolicyLike, apart, asked_for, given
from .progress import Progress, followed
from .sweep import Ran, Sweep, sweep
from .table import Table
from .trace import Trace, trace, trace_of
from .victim import Closed, Victim

__all__ = [
    "Admit",
    "Admitted",
    "Arrived",
    "Closed",
    "Comparison",
    "Drive",
    "Error",
    "Fleet",
    "Group",
    "Hot",
    "Jobs",
    "OptionError",
    "Options",
    "Outcome",
    "Policy",
    "Ran",
    "RunError",
    "Sweep",
    "Table",
    "Tenants",
    "Trace",
    "TraceError",
    "Victim",
    "compare",
    "drive",
    "drives",
    "fio",
    "fleet",
    "loads",
    "policies",
    "run",
    "sweep",
    "trace",
    "trace_of",
]

def policies() -> str:
    """The names of policies, and what their options mean."""
    return _lab.policies()


def run(
    load: Load | Tenants,
    drive: str | os.PathLike[str] | Drive = "tlc-nvme",
    policy: PolicyLike = "vellum",
    *,
    victim: Victim | None = None,
    hot: Hot | None = None,
    admit: Admit | None = None,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Outcome:
    """Runs a load on a drive under a policy.

    `load` is one of `loads()`, the path of a trace, a `Trace`, or the `Jobs` of fio; or a dict of several traces by name, which share the drive as tenants:
    what each saw is in `details["tenants"]`. `drive` is one of `drives()`, the path of a drive's
    file, or a `Drive`. `policies()` lists what `policy` may be; or it is a `Policy` of your own. `options` are those of `vellum lab run`, with `_` for `-`:
    `capacity="1G"`, `op=28`, `theta=0.9`, `fcfs=True`; `help(vellum.Options)` lists them. `progress=True` shows a bar, of
    tqdm if it is installed; a function is called every 100 ms with the number of requests served so far, and the number of all.

    `victim` chooses which block the collector of a page map (`policy="base"`) takes, instead of the policy: a
    function of `Closed` to the place of a block. `hot` says which pages are hot, where a page map keeps them apart
    (`policy="base:hot-cold"`): a function of a page's number, and of where it was: True if it was among the hot pages, False if not, and
    None when the host writes it. `admit` says what each write may use: a function of `Arrived` to `Admitted`, for the drive's write buffer
    (`policy="base"`), deduplication (`"vellum:dedup"`) and fewer bytes (`"vellum:compress"`). All are slow, and meant for trying ideas:
    what they raise ends the run. A `Policy` has such functions as its own. They are called themselves, and not copies: what they remember
    is there for the next run.

    Raises `OptionError`, `TraceError` or `RunError`, which say what to do.
    """
    asked = given([policy])
    if victim is not None or hot is not None or admit is not None:
        if not isinstance(policy, str):
            raise OptionError(f"policy {policy.name} has functions of its own: give victim, hot and admit to it")
        asked = [asked_for(policy, None, victim, hot, admit)]
    done = _run(load, drive, asked, options, 1, progress)
    for name, why in done.failed.items():
        raise RunError(f"{name}: {why}")
    return done[0]


def compare(
    load: Load | Tenants,
    drive: str | os.PathLike[str] | Drive = "tlc-nvme",
    policies: Sequence[PolicyLike] = (),
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """Runs a load on a drive under policies, on all cores (or so many `threads`); the results are the same.

    Without policies it takes those of `vellum lab compare`. Those that are a `Policy` have functions of your own, and stand beside the
    built-in ones under their names; what a function raises ends the comparison. A policy that cannot be run is in `failed`, with the reason.
    Each gets a copy of its functions, by cloudpickle, if that is installed and can copy them: what they remember is not there afterwards, and
    no policy sees what another one has left. If not, those with functions run with the functions themselves, one policy after the other.
    The rest is as in `run`.
    """
    if isinstance(policies, (str, Policy)) or not all(isinstance(policy, (str, Policy)) for policy in policies):
        raise OptionError(f"policies are a list of names and vellum.Policy, like ['base', 'vellum'], not {policies!r}")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise OptionError(f"threads are a number from 1 on, not {threads!r}")
    # Names are checked before anything is copied.
    given(policies)
    asked, beside = apart(policies)
    done = _run(load, drive, given(asked), options, threads if beside else 1, progress)
    if not done:
        raise RunError("; ".join(f"{name}: {why}" for name, why in done.failed.items()))
    return done


def _run(
    load: Load | Tenants,
    drive: str | os.PathLike[str] | Drive,
    policies: list[_lab.Given],
    options: Options,
    threads: int | None,
    progress: Progress | None,
) -> Comparison:
    asked = said(load, drive, options, progress)
    native = None if asked.trace is None else asked.trace.native
    tenants = [(name, trace.native) for name, trace in asked.tenants]
    with followed(progress, _called(load, policies), "requests") as tell:
        forms, (about, warnings), failed = _lab.run(asked.words, policies, native, asked.drive, threads, tell, tenants)
    return comparison(forms, about, warnings, dict(failed))


def _called(load: Load | Tenants, policies: list[_lab.Given]) -> str:
    """What runs, in a word or two."""
    if isinstance(load, Mapping):
        what = " and ".join(load)
    else:
        what = load.name if isinstance(load, Jobs) else os.path.basename(load.path if isinstance(load, Trace) else load)
    return f"{what}, {policies[0][1] or policies[0][0]}" if len(policies) == 1 else what
