"""Your own admission policy, as a Python function."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import _lab


class Arrived(NamedTuple):
    """A write of the host."""

    lba: int
    """Its first block."""
    contents: tuple[int, ...]
    """What it writes, a number a block: equal numbers are equal blocks, 0 is a block of zeros."""
    now_ns: int
    """Virtual time. It stands still while a drive is filled and warmed up."""
    durable: bool
    """Whether the host wants it on the medium when it is answered."""


class Admitted(NamedTuple):
    """What a write may use. It has no effect on what the drive or the policy does not have."""

    buffer: bool = True
    """The drive's write buffer (`policy="base"`): else it is answered when the units that it fills are on flash."""
    dedup: bool = True
    """Deduplication: else the engine does not look for its contents. It still remembers them for later writes."""
    pack: bool = True
    """Fewer bytes, by compression or as a difference: else it is stored whole."""


Admit = Callable[[Arrived], Admitted | bool]
"""What a write may use: `Admitted`; or True for all that there is, False for nothing."""


def asked_admit(admit: Admit) -> _lab.AskedAdmit:
    """The function as the native part calls it."""
    if not callable(admit):
        raise _lab.OptionError(f"admit is a function of vellum.Arrived, not {admit!r}")

    def ask(lba: int, contents: list[int], now_ns: int, durable: bool) -> tuple[bool, bool, bool]:
        said = admit(Arrived(lba, tuple(contents), now_ns, durable))
        if said is True or said is False:
            return said, said, said
        if isinstance(said, Admitted) and all(one is True or one is False for one in said):
            return said.buffer, said.dedup, said.pack
        raise _lab.OptionError(f"admit says vellum.Admitted, True or False, not {said!r}")

    return ask
