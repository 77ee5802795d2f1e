"""Your own victim policy, as a Python function."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import _lab

Numbers = npt.NDArray[np.uint64]


class Closed(NamedTuple):
    """The closed blocks of one die, of which one has to be collected: arrays with an element for each block."""

    block: Numbers
    """Its number on its die."""
    valid: Numbers
    """Its valid pages: what has to be moved."""
    age: Numbers
    """Pages that have died on the die since it was filled, or since one of its own died."""
    pages: int
    """Pages of a block."""


Victim = Callable[[Closed], int]
"""The place of the block that is collected next. Blocks without a dead page are not shown as long as there are others."""


def asked(victim: Victim) -> _lab.Asked:
    """The function as the native part calls it: with columns of bytes."""
    if not callable(victim):
        raise _lab.OptionError(f"a victim policy is a function of vellum.Closed, not {victim!r}")

    def ask(block: bytes, valid: bytes, age: bytes, pages: int) -> int:
        of_block, of_valid, of_age = (np.frombuffer(column, dtype="<u8") for column in (block, valid, age))
        said = victim(Closed(of_block, of_valid, of_age, pages))
        last = len(of_valid) - 1
        try:
            place = operator.index(said)
        except TypeError:
            place = -1
        if not 0 <= place <= last:
            raise _lab.OptionError(f"a victim is the place of a block, here from 0 to {last}, not {said!r}")
        return place

    return ask
