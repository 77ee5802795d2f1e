"""Loads and drives, as the caller gives them, and as the native part takes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from . import _lab
from .drives import Drive
from .drives import drive as read_drive
from .drives import drives as known_drives
from .jobs import Jobs
from .options import Options
from .progress import Progress
from .trace import Trace, trace
from .words import words

Load = str | os.PathLike[str] | Trace | Jobs
"""The name of a load, the path of a trace, a trace that was read, or the jobs of fio."""

Tenants = Mapping[str, str | os.PathLike[str] | Trace]
"""Traces that share a drive, by what each is called: paths, or traces that were read."""

DriveLike = str | os.PathLike[str] | Drive
"""The name of a drive, the path of a drive's file, or a drive."""

OF_THE_TRACE = ("format", "columns", "journal_at", "in_place")
"""Options that say how a trace is read."""

ELSEWHERE = {
    "device": "say it as drive=",
    "workload": "it is the first argument, the load",
    "tenant": "tenants are a load: a dict of traces by name, like {'mail': 'mail.csv', 'web': 'web.csv'}",
    "fio": "a job file is a load of its own: vellum.run(vellum.fio('jobs.fio'), ...)",
}
"""Options of the command that are none here, and what to do instead. The load or the drive of the call would override them."""


def loads() -> dict[str, str]:
    """The loads that have a name, and what each is."""
    return dict(_lab.workloads())


class Said(NamedTuple):
    """A load on a drive, as the native part takes it."""

    words: list[str]
    trace: Trace | None
    drive: tuple[str, str] | None
    """The name and the file's text; without, `words` name it."""
    tenants: tuple[tuple[str, Trace], ...] = ()
    """Traces that share the drive, by name."""


def said(load: Load | Tenants, drive: DriveLike, options: Options, progress: Progress | None = None) -> Said:
    """Makes it of what the caller gives. Reads a trace that is a path."""
    for name, instead in ELSEWHERE.items():
        if name in options:
            raise _lab.OptionError(f"{name}: {instead}")
    own = None
    out = words(options)
    if isinstance(drive, Drive):
        own = (drive.name, drive.toml)
    elif isinstance(drive, (str, os.PathLike)):
        out.append(f"--device={os.fspath(drive)}")
    else:
        raise _lab.OptionError(f"a drive is a name, a path or a vellum.Drive, not {drive!r}")
    if isinstance(load, Mapping):
        if not load or not all(isinstance(name, str) for name in load):
            raise _lab.OptionError("tenants are a dict of traces by name, and there is at least one")
        return Said(out, None, own, tuple((name, _tenant(of, options, progress)) for name, of in load.items()))
    if isinstance(load, Jobs):
        out.append(f"--fio={load.text}")
        return Said(out, None, own)
    if isinstance(load, str) and load in loads():
        out.append(f"--workload={load}")
        return Said(out, None, own)
    if isinstance(load, (str, os.PathLike)):
        if not os.path.exists(load):
            names = ", ".join(loads())
            raise _lab.TraceError(f"{os.fspath(load)!r} is neither a trace's file nor a load; loads are {names}")
        return Said(out, trace(load, progress=progress, **options), own)
    if not isinstance(load, Trace):
        raise _lab.OptionError(f"a load is a name, a path, a vellum.Trace or a vellum.Jobs, not {load!r}")
    return Said(out, _read(load, options), own)


def _read(load: Trace, options: Options) -> Trace:
    if late := [name for name in OF_THE_TRACE if name in options]:
        raise _lab.OptionError(f"{', '.join(late)}: the trace is read already; say it to vellum.trace")
    return load


def _tenant(load: object, options: Options, progress: Progress | None) -> Trace:
    """The trace of a tenant. Reads it if it is a path."""
    if isinstance(load, Trace):
        return _read(load, options)
    if not isinstance(load, (str, os.PathLike)):
        raise _lab.OptionError(f"a tenant's load is a path or a vellum.Trace, not {load!r}")
    if not os.path.exists(load):
        raise _lab.TraceError(f"{os.fspath(load)!r} is no trace's file, and a tenant's load is a trace")
    return trace(load, progress=progress, **options)


def whole(drive: DriveLike) -> Drive:
    """The drive itself, so that another machine can run it without its file."""
    if isinstance(drive, Drive):
        return drive
    if isinstance(drive, str) and (known := known_drives().get(drive)):
        return known
    if isinstance(drive, (str, os.PathLike)):
        if os.path.exists(drive):
            from pathlib import Path

            return read_drive(Path(drive))
        names = ", ".join(known_drives())
        raise _lab.OptionError(f"drive {os.fspath(drive)!r}: there are {names}; else it is the path of a drive's file")
    raise _lab.OptionError(f"a drive is a name, a path or a vellum.Drive, not {drive!r}")
