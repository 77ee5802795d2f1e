"""Drives: those with a name, and your own."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import _lab

Fields = dict[str, Any]
"""Values by name; a table is again such a dictionary. A name has `_` where the file has `-`."""

SOURCE_MOST = 1000
"""The longest source that a drive's file may have."""

NAME_MOST = 80
"""The longest name that is made of what was changed."""


@dataclass(frozen=True)
class Drive:
    """A drive: what it consists of, and how fast it is.

    >>> drive = vellum.drives()["tlc-nvme"]
    >>> drive.fields["flash"]["program_us"]
    >>> mine = drive.with_(program_us=900, over_provisioning_percent=12)
    >>> cached = drive.with_(name="cached", slc_cache={"erase_blocks": 8, "bits_per_cell": 3, "read_us": 25, "program_us": 200, "erase_ms": 3})
    """

    name: str
    """What it is called in results."""
    about: str
    """What it is."""
    source: str
    """Where its figures come from."""
    toml: str
    """Its file, with a word on each value and on what it may be."""

    @property
    def fields(self) -> Fields:
        """Its values by name, in tables; `None` for a value or a table that it could have and has not."""
        toml = _file(self)
        read = tomllib.loads(toml)
        out: Fields = {}
        for table, key in _known(toml):
            if key is None:
                out[_python(table)] = {} if table in read else None
            elif table:
                out[_python(table)][_python(key)] = _in_python(read[table].get(key))
            else:
                out[_python(key)] = _in_python(read.get(key))
        return out

    def with_(self, name: str | None = None, **fields: Any) -> Drive:
        """The same drive with other values.

        A field is a value of any of its tables, like `program_us=900`; or a table, with those of its values that change, like
        `flash={"program_us": 900}`. That is how it gets a table that it has not. `None` takes an optional value or a table away.
        `name` is what it is called in results, by default the old name with what has changed. `source` says where the figures come from, by
        default the old source and what has changed.

        Raises `OptionError`, which names the field and what it may be.
        """
        if not fields:
            raise _lab.OptionError(f"drive {self.name}: give with_ a field to change, like program_us=900")
        if name is not None and not isinstance(name, str):
            raise _lab.OptionError(f"drive {self.name}: a name is a text, not {name!r}")
        changes = _changes(self, fields)
        if name is None:
            name = f"{self.name}, {_told(changes)}"
            name = name if len(name) <= NAME_MOST and name.isprintable() else f"{self.name}, changed"
        read: dict[str, Any] = tomllib.loads(_file(self))
        if figures := _new_figures(read, changes):
            source = f"{self.source}; changed: {_told(figures)}"
            if len(source) > SOURCE_MOST or not source.isprintable():
                source = f"{self.source[: SOURCE_MOST // 2]}; changed in several values"
            changes = {**changes, ("", "source"): source}
        for (table, key), value in changes.items():
            of = read.setdefault(table, {}) if table else read
            if value is None:
                of.pop(key, None)
            elif key:
                of[key] = value
        try:
            return Drive(*_lab.drive(name, _written(read)))
        except _lab.OptionError as error:
            raise _lab.OptionError(_explained(str(error), self.name, changes)) from None


Changes = dict[tuple[str, str], Any]
"""New values by table and key, as the file names them. A table that goes away is a key of the file's own."""


def _told(changes: Changes) -> str:
    return ", ".join(f"{_python(key)}={value}" for (_, key), value in changes.items())


def _new_figures(read: Mapping[str, Any], changes: Changes) -> Changes:
    """Those changes that the drive's source does not know of. None if the caller gives a source."""
    if ("", "source") in changes:
        return {}
    old = {place: read.get(place[0], {}).get(place[1]) if place[0] else read.get(place[1]) for place in changes}
    return {place: value for place, value in changes.items() if value != old[place] and place != ("", "about")}


def _file(drive: Drive) -> str:
    """The drive's file as the native part writes it, whoever has written it."""
    return _lab.drive(drive.name, drive.toml)[3]


def _known(toml: str) -> Iterator[tuple[str, str | None]]:
    """All tables and keys of a drive's file that were written here: what is not there stands in a comment."""
    table = ""
    for line in toml.splitlines():
        if found := re.fullmatch(r"(# )?\[([a-z-]+)\]", line):
            if found[1] is None:
                table = found[2]
            yield found[2], None
        elif found := re.match(r"(?:# )?([a-z-]+) =", line):
            yield table, found[1]


def _changes(drive: Drive, fields: Mapping[str, Any]) -> Changes:
    """Finds the place of each field."""
    known = list(_known(_file(drive)))
    tables = {_python(table): table for table, key in known if key is None}
    out: Changes = {}
    for field, value in fields.items():
        if field in tables:
            out |= _of_table(drive, field, tables[field], value)
            continue
        places = [(table, key) for table, key in known if key is not None and _python(key) == field]
        if not places:
            names = [*tables, *(_python(key) for _, key in known if key is not None)]
            near = difflib.get_close_matches(field, names, 2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(dict.fromkeys(names))}"
            raise _lab.OptionError(f"drive {drive.name}: there is no field {field}: {hint}")
        if len(places) > 1:
            among = " or ".join(f'{_python(table)}={{"{field}": {value!r}}}' for table, _ in places)
            raise _lab.OptionError(f"drive {drive.name}: {field} is in several tables: write {among}")
        out[places[0]] = _plain(f"drive {drive.name}: {field}", value)
    return out


def _of_table(drive: Drive, field: str, table: str, value: Any) -> Changes:
    at = f"drive {drive.name}: {field}"
    if value is None:
        return {("", table): None}
    if not isinstance(value, Mapping) or not value or not all(isinstance(key, str) for key in value):
        raise _lab.OptionError(f"{at}: it is a table, a dictionary of its values, or None, not {value!r}")
    return {(table, _in_file(key)): _plain(f"{at}: {key}", of) for key, of in value.items()}


def _plain(at: str, value: Any) -> Any:
    """A value as the file can have it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(at, each) for each in value]
    if isinstance(value, Mapping):
        return {_in_file(str(key)): _plain(f"{at}: {key}", each) for key, each in value.items()}
    raise _lab.OptionError(f"{at}: it is a number, True or False, a text, or a list or a dictionary of such, not {value!r}")


def _explained(error: str, name: str, changes: Changes) -> str:
    """An error of the native part without the line of a file that nobody has seen, and with what was given."""
    found = re.fullmatch(r'drive ".*": line \d+: (?:\[(.+?)\] )?"?([a-z_-]+)"?: (.*)', error, re.DOTALL)
    if found is None:
        return error
    table, key, wrong = found[1] or "", found[2], found[3]
    at = f"{_python(table)}: {_python(key)}" if table else _python(key)
    value = changes.get((table, key))
    given = "" if value is None else f", not {value!r}"
    return f"drive {name}: {at}: {wrong}{given}"


def _python(name: str) -> str:
    return name.replace("-", "_")


def _in_file(name: str) -> str:
    return name.replace("_", "-")


def _in_python(value: Any) -> Any:
    """A value of the file with Python's names."""
    if isinstance(value, dict):
        return {_python(key): _in_python(each) for key, each in value.items()}
    return [_in_python(each) for each in value] if isinstance(value, list) else value


def _written(read: Mapping[str, Any]) -> str:
    """TOML of what was read: values of the file's own first."""
    lines = [f"{_word(key)} = {_value(value)}" for key, value in read.items() if not isinstance(value, dict)]
    for table, values in read.items():
        if isinstance(values, dict):
            lines += [f"[{table}]", *(f"{_word(key)} = {_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _word(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_word(key)} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        # TOML has inf and nan too, in lower case as Python has them.
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def drives() -> dict[str, Drive]:
    """The drives that have a name."""
    return {told[0]: Drive(*told) for told in _lab.drives()}


def drive(text: str | os.PathLike[str], name: str = "mine") -> Drive:
    """A drive of your own: the text of a drive's file, or the path of one. `Drive.with_` changes values of one that there is."""
    if isinstance(text, os.PathLike):
        path = Path(text)
        try:
            return Drive(*_lab.drive(path.stem, path.read_text()))
        except (OSError, UnicodeDecodeError) as error:
            raise _lab.OptionError(f"drive {path}: it cannot be read: {error}") from error
    return Drive(*_lab.drive(name, text))
