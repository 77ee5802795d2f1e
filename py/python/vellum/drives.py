"""Drives: those with a name, and your own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from . import _lab


@dataclass(frozen=True)
class Drive:
    """A drive: the text of a TOML file, which says what the drive consists of and how fast it is.

    >>> small = vellum.drives()["tlc-nvme"]
    >>> mine = vellum.drive(small.toml.replace("channels = 8", "channels = 2"), name="two-channels")
    """

    name: str
    """What it is called in results."""
    about: str
    """What it is."""
    source: str
    """Where its figures come from."""
    toml: str
    """Its file, with a word on each value."""


def drives() -> dict[str, Drive]:
    """The drives that have a name."""
    return {told[0]: Drive(*told) for told in _lab.drives()}


def drive(text: str | os.PathLike[str], name: str = "mine") -> Drive:
    """A drive of your own: the text of a drive's file, or the path of one."""
    if isinstance(text, os.PathLike):
        path = Path(text)
        try:
            return Drive(*_lab.drive(path.stem, path.read_text()))
        except (OSError, UnicodeDecodeError) as error:
            raise _lab.OptionError(f"drive {path}: it cannot be read: {error}") from error
    return Drive(*_lab.drive(name, text))
