"""Job files of fio, as loads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from . import _lab


@dataclass(frozen=True)
class Jobs:
    """The jobs of a job file of fio: a load for `run`, `compare`, `sweep` and `fleet`."""

    name: str
    """What it is called: its file, or its first job."""
    text: str
    """The file's text, and not its path."""

    def __post_init__(self) -> None:
        try:
            _lab.jobs(self.text)
        except _lab.OptionError as error:
            raise _lab.OptionError(f"jobs {self.name}: {error}; vellum.fio reads a file") from None
        # The native part tells a text from a path by its lines.
        if "\n" not in self.text:
            object.__setattr__(self, "text", self.text + "\n")

    @property
    def passed_over(self) -> list[str]:
        """Options in it that do not change the requests to a device."""
        return _lab.jobs(self.text)[1]


def fio(file: str | os.PathLike[str]) -> Jobs:
    """Reads a job file of fio: its path, or its text, which has several lines.

    >>> vellum.run(vellum.fio("writers.fio"), drive="emmc", capacity="1G")
    >>> vellum.fio('''
    ... [writers]
    ... rw=randwrite
    ... bs=4k
    ... size=512m
    ... ''')

    Anything that is not modelled is an error with its line, because a load that nearly matches the file would be taken for it.
    """
    if not isinstance(file, (str, os.PathLike)):
        raise _lab.OptionError(f"a job file is a path or a text, not {file!r}")
    if isinstance(file, str) and "\n" in file:
        name, text = "", file
    else:
        path = Path(file)
        try:
            name, text = path.name, path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise _lab.OptionError(f"job file {path}: it cannot be read: {error}") from error
    try:
        first, _ = _lab.jobs(text)
    except _lab.OptionError as error:
        raise _lab.OptionError(f"job file {name}: {error}" if name else f"job file: {error}") from None
    return Jobs(name or first, text)
