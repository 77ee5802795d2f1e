"""Options from Python, as the words that the command line takes."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Mapping
from typing import Any

from . import _lab

OPTIONS = [(name.replace("-", "_"), takes_value, about) for name, takes_value, about in _lab.options()]
"""All options: name, whether it takes a value, help."""

_FLAGS = {name: not takes_value for name, takes_value, _ in OPTIONS}


def words(options: Mapping[str, Any]) -> list[str]:
    """The words. Whoever parses them checks them."""
    return [word for name, value in options.items() for word in _word(name, value)]


def _word(name: str, value: Any) -> list[str]:
    if name not in _FLAGS:
        near = difflib.get_close_matches(name, _FLAGS, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else "help(vellum.Options) tells those there are"
        raise _lab.OptionError(f"there is no option {name}: {hint}")
    option = "--" + name.replace("_", "-")
    if value is None:
        return []
    if _FLAGS[name]:
        if not isinstance(value, bool):
            raise _lab.OptionError(f"{name} is True or False, not {value!r}")
        return [option] if value else []
    # To Python a truth value is a number, but not to a reader.
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Real)):
        raise _lab.OptionError(f"{name} is a number or a text, not {value!r}")
    return [f"{option}={value}"]
