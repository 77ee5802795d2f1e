"""Traces: the requests to a disk."""

from __future__ import annotations

import csv
import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from . import _lab
from .options import Options
from .progress import Progress, followed
from .table import Table
from .words import words

OPS = np.array(["read", "write", "write", "discard", "flush"], dtype=object)
"""By the native part's codes; the second write is durable when it is answered."""
DURABLE = 2
KINDS = ("<u8", "<u4", "u1", "<u8", "<u8")


class Trace:
    """A trace that has been read: run it as often as you like, or look at its requests.

    >>> trace = vellum.trace("requests.csv.gz")
    >>> trace.summary["writes"]
    >>> trace.requests.to_pandas().groupby("op")["bytes"].sum()
    """

    def __init__(self, native: _lab.Trace, said: list[str], kept: object = None) -> None:
        self.native = native
        # The options that it was read with.
        self.said = said
        # A folder that is removed with this object.
        self._kept = kept

    @property
    def path(self) -> Path:
        """Its file."""
        return Path(self.native.path)

    @property
    def format(self) -> str:
        """Its format."""
        return self.native.format

    @property
    def summary(self) -> dict[str, int]:
        """Its contents: requests by kind, blocks, times."""
        return self.native.summary

    @functools.cached_property
    def requests(self) -> Table:
        """Its requests: `time_ns`, `disk`, `op`, `durable`, `offset` and `bytes`."""
        columns = self.native.columns()
        time, disk, op, offset, length = (
            np.frombuffer(column, dtype=kind) for column, kind in zip(columns, KINDS)
        )
        return Table(
            time_ns=time, disk=disk, op=OPS[op], durable=op == DURABLE, offset=offset, bytes=length
        )

    def __repr__(self) -> str:
        return f"<vellum.Trace: {self.path.name}, {self.format}, {self.summary['requests']} requests>"


def trace(
    path: str | os.PathLike[str], *, progress: Progress | None = None, **options: Unpack[Options]
) -> Trace:
    """Reads a trace of any format that the lab knows, compressed by gzip or zstd, or not at all.

    It takes the options that say how to read it: `format`, `columns`, `journal_at`, `in_place`. `progress` is as in `vellum.run`, of
    bytes of the file.
    """
    said = words(options)
    with followed(progress, f"reading {os.path.basename(path)}", "bytes") as tell:
        return Trace(_lab.Trace(os.fspath(path), said, tell), said)


def trace_of(requests: Mapping[str, Any]) -> Trace:
    """A trace of columns, like those of `Trace.requests` or a `pandas.DataFrame`.

    `op` (read, write, discard or flush), `offset` and `bytes` are needed, as whole numbers. `time_ns` is when each arrived; `durable` marks
    writes that are answered only when they are on stable storage. All requests are to one disk.
    """
    needed = ["op", "offset", "bytes"]
    missing = [name for name in needed if name not in requests]
    if missing:
        raise _lab.OptionError(f"a trace needs columns {', '.join(needed)}: {', '.join(missing)} missing")
    names = needed + ["time_ns"] * ("time_ns" in requests)
    columns = [np.asarray(requests[name]) for name in names]
    if "durable" in requests:
        durable = np.asarray(requests["durable"], dtype=np.bool_)
        if len(durable) == len(columns[0]):
            columns[0] = np.where(durable & (columns[0] == "write"), "wfua", columns[0])
    for name, column in zip(names[1:], columns[1:]):
        if not np.issubdtype(column.dtype, np.integer):
            raise _lab.OptionError(f"column {name} of a trace is of whole numbers, not of {column.dtype}")
    if len({len(column) for column in columns}) > 1:
        raise _lab.OptionError("the columns of a trace have one length")
    told = "op=0,offset=1,length=2" + (",time=3:ns" if "time_ns" in requests else "")
    kept = tempfile.TemporaryDirectory(prefix="vellum-trace-")
    path = Path(kept.name) / "requests.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(zip(*(column.tolist() for column in columns)))
    said = words({"columns": told})
    return Trace(_lab.Trace(path, said), said, kept)
