"""Tables: columns of one length, as NumPy arrays."""

from __future__ import annotations

import csv
import importlib
import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _lab

Array = npt.NDArray[Any]

WHOLE_MOST = 2**63
"""Where NumPy's whole numbers end: from here on a column has numbers that are nearly right."""


NAMES = ("policy", "load")
"""Columns of names, which stay as they are: a name may read as a number, like "1e3"."""


class Table(dict[str, Array]):
    """Columns by name, each a NumPy array, all of one length.

    It is a `dict`, so whatever takes a dict takes it: `pandas.DataFrame(table)`, `polars.DataFrame(table)`,
    `pyarrow.table(table)`, `plt.plot("seconds", "erases", data=table)`.
    """

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.values()), ()))

    def to_pandas(self) -> Any:
        """As a `pandas.DataFrame`."""
        import pandas

        return pandas.DataFrame(self)

    def to_arrow(self) -> Any:
        """As a `pyarrow.Table`; NaN becomes null, and a column of several kinds text."""
        pyarrow = _pyarrow("pyarrow")

        def array(column: Array) -> Any:
            try:
                return pyarrow.array(column, from_pandas=True)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
                # Arrow has no columns of several kinds, as of a sweep that varies an option with 1, "auto" and None.
                text = [None if known is None or known != known else str(known) for known in column]
                return pyarrow.array(text)

        return pyarrow.table({name: array(column) for name, column in self.items()})

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a Parquet file, which keeps what each column is of; NaN becomes null. It needs pyarrow.

        >>> outcome.steps.to_parquet("course.parquet")
        """
        parquet = _pyarrow("pyarrow.parquet")
        try:
            parquet.write_table(self.to_arrow(), os.fspath(path))
        except OSError as error:
            raise _lab.Error(f"{os.fspath(path)}: it cannot be written: {error.strerror or error}") from error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface, by pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        names = list(self)
        more = f" and {len(names) - 9} more" if len(names) > 9 else ""
        return f"<vellum.Table: {self.rows} rows of {', '.join(names[:9])}{more}>"

    def _repr_html_(self) -> str:
        html: str = self.to_pandas()._repr_html_()
        return html


def _pyarrow(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise _lab.Error("Arrow and Parquet need pyarrow: pip install pyarrow") from None


def of_csv(text: str) -> Table:
    """A table of comma-separated values with headings: those of the lab, so that each figure has one name everywhere."""
    lines = csv.reader(io.StringIO(text))
    names = next(lines, [])
    columns = zip(*lines)
    return Table((name, np.array(cells, dtype=object) if name in NAMES else _column(cells)) for name, cells in zip(names, columns))


def value(cell: str) -> int | float | bool | str | None:
    """The value of one cell."""
    if cell == "":
        return None
    if cell in ("true", "false"):
        return cell == "true"
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell


def column(values: Sequence[Any]) -> Array:
    """A column of plain values: numbers as numbers, whole ones unless some are missing, which are NaN."""
    kinds = {type(known) for known in values}
    if kinds == {bool}:
        return np.array(values, dtype=np.bool_)
    if kinds == {int} and all(-WHOLE_MOST <= known < WHOLE_MOST for known in values):
        return np.array(values, dtype=np.int64)
    if kinds <= {int, float, type(None)}:
        return np.array([np.nan if known is None else known for known in values], dtype=np.float64)
    return np.array(values, dtype=object)


def _column(cells: tuple[str, ...]) -> Array:
    """Text that is no number stays as it is."""
    values = [value(cell) for cell in cells]
    kinds = {type(known) for known in values}
    return column(values if kinds <= {int, float, type(None)} or kinds <= {bool, type(None)} else cells)
