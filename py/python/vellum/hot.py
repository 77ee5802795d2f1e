"""Your own policy of which pages are hot, as a Python function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import _lab

Hot = Callable[[int, bool | None], bool]
"""Whether a page is hot, when the host writes it (None) and when it is moved: from the hot ones (True), or from the others."""


def asked_hot(hot: Hot) -> _lab.AskedHot:
    """The function as the native part calls it."""
    if not callable(hot):
        raise _lab.OptionError(f"hot is a function of a page and of where it was, not {hot!r}")

    def ask(page: int, was: bool | None) -> bool:
        said = hot(page, was)
        if said is True or said is False:
            return said
        if isinstance(said, np.bool_):
            return bool(said)
        raise _lab.OptionError(f"hot says True or False, not {said!r}")

    return ask
