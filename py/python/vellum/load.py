"""What is run, on what: loads and drives as they are given, and as the native part takes them."""

from __future__ import annotations

import os
from typing import NamedTuple

from . import _lab
from .drives import Drive
from .drives import drive as read_drive
from .drives import drives as known_drives
from .options import Options
from .trace import Trace, trace
from .words import words

Load = str | os.PathLike[str] | Trace
"""The name of a load, the path of a trace, or a trace that was read."""

DriveLike = str | os.PathLike[str] | Drive
"""The name of a drive, the path of a drive's file, or a drive."""

OF_THE_TRACE = ("format", "columns", "journal_at", "in_place")
"""Options that say how a trace is read."""


def loads() -> dict[str, str]:
    """The loads that are known by name, and what each is."""
    return dict(_lab.workloads())


class Said(NamedTuple):
    """A load on a drive, as the native part takes it."""

    words: list[str]
    trace: Trace | None
    drive: tuple[str, str] | None
    """The name and the file's text; without, `words` name it."""


def said(load: Load, drive: DriveLike, options: Options, progress: _lab.Progress | None = None) -> Said:
    """Of what is asked. A trace that is a path is read."""
    own = None
    out = words(options)
    if isinstance(drive, Drive):
        own = (drive.name, drive.toml)
    elif isinstance(drive, (str, os.PathLike)):
        out.append(f"--device={os.fspath(drive)}")
    else:
        raise _lab.OptionError(f"a drive is a name, a path or a vellum.Drive, not {drive!r}")
    if isinstance(load, str) and load in loads():
        out.append(f"--workload={load}")
        return Said(out, None, own)
    if isinstance(load, (str, os.PathLike)):
        if not os.path.exists(load):
            names = ", ".join(loads())
            raise _lab.TraceError(f"{os.fspath(load)!r} is neither a trace's file nor a load; loads are {names}")
        return Said(out, trace(load, progress=progress, **options), own)
    if not isinstance(load, Trace):
        raise _lab.OptionError(f"a load is a name, a path or a vellum.Trace, not {load!r}")
    if late := [name for name in OF_THE_TRACE if name in options]:
        raise _lab.OptionError(f"{', '.join(late)}: the trace is read already; say it to vellum.trace")
    return Said(out, load, own)


def whole(drive: DriveLike) -> Drive:
    """The drive itself: a machine that runs it needs no file of it then."""
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
