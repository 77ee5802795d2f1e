"""Policies of your own: a built-in one, and functions that decide in it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass

from . import _lab
from .admit import Admit, asked_admit
from .hot import Hot, asked_hot
from .victim import Victim, asked


@dataclass(frozen=True)
class Policy:
    """A policy of your own: a built-in one, and functions that decide in it.

    >>> rested = vellum.Policy("rested", "base", victim=lambda blocks: (blocks.valid + 9 * (blocks.age < 2000)).argmin())
    >>> vellum.compare("zipf", "emmc", ["base", rested])
    """

    name: str
    """What it is called in results."""
    policy: str = "base"
    """The built-in policy, like "base:hot-cold": `vellum.policies()` lists them."""
    victim: Victim | None = None
    """Chooses the block that is collected next: a function of `Closed` to the place of a block."""
    hot: Hot | None = None
    """Says which pages are hot: a function of a page, and of where it was."""
    admit: Admit | None = None
    """Says what a write may use: a function of `Arrived` to `Admitted`."""
    version: str | None = None
    """Which version of your functions these are. With one, the cache of a sweep keeps their results: change it when you change them."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise _lab.OptionError(f"a policy's name is a text of one line, not {self.name!r}")
        if not isinstance(self.policy, str):
            raise _lab.OptionError(f"policy {self.name}: policy is a name, like 'base:cost-benefit', not {self.policy!r}")
        if self.version is not None and not isinstance(self.version, str):
            raise _lab.OptionError(f"policy {self.name}: its version is a text, not {self.version!r}")
        if self.victim is None and self.hot is None and self.admit is None:
            raise _lab.OptionError(f"policy {self.name}: it has none of victim, hot and admit: write {self.policy!r} instead")
        self.given()

    def given(self) -> _lab.Given:
        """The policy as the native part takes it."""
        return asked_for(self.policy, self.name, self.victim, self.hot, self.admit)


def asked_for(policy: str, name: str | None, victim: Victim | None, hot: Hot | None, admit: Admit | None) -> _lab.Given:
    """A policy and functions as the native part takes them."""
    return (
        policy,
        name,
        None if victim is None else asked(victim),
        None if hot is None else asked_hot(hot),
        None if admit is None else asked_admit(admit),
    )


PolicyLike = str | Policy
"""The name of a built-in policy, or a policy of your own."""


def label(policy: PolicyLike) -> str:
    """What a policy is called in results."""
    if isinstance(policy, Policy):
        return policy.name
    if isinstance(policy, str):
        return policy
    raise _lab.OptionError(f"a policy is a name, like 'base:cost-benefit', or a vellum.Policy, not {policy!r}")


def given(policies: Iterable[PolicyLike]) -> list[_lab.Given]:
    """Policies as the native part takes them. No result has the name of an own policy but its own."""
    asked = list(policies)
    names = [label(policy) for policy in asked]
    for policy in asked:
        if isinstance(policy, Policy) and names.count(policy.name) > 1:
            raise _lab.OptionError(f"policies: {policy.name!r} is there twice")
    return [policy.given() if isinstance(policy, Policy) else (policy, None, None, None, None) for policy in asked]


def apart(policies: Iterable[PolicyLike]) -> tuple[list[PolicyLike], bool]:
    """The policies, with copies of their functions, so that none sees what another one has left in them. False if there are two own
    ones at least that cannot be copied: then they run one after the other, and what they leave does not depend on threads.
    """
    asked = list(policies)
    own = [policy for policy in asked if isinstance(policy, Policy)]
    try:
        return [unpacked(packed(policy)) if isinstance(policy, Policy) else policy for policy in asked], True
    except Exception:
        return asked, len(own) < 2


def packed(policy: Policy) -> bytes:
    """The policy as bytes, functions and what they hold: a worker makes a copy of them for each run."""
    if importlib.util.find_spec("cloudpickle") is None:
        raise _lab.OptionError(f"policy {policy.name}: a sweep copies its functions for each run, by cloudpickle: pip install cloudpickle")
    try:
        from .copies import dumps

        return dumps(policy)
    except ImportError as error:
        raise _lab.OptionError(f"policy {policy.name}: its functions are copied by cloudpickle 3 or newer: {error}") from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise _lab.OptionError(f"policy {policy.name}: its functions cannot be copied for a run of a sweep: {what}") from error


def unpacked(content: bytes) -> Policy:
    """The policy of such bytes."""
    import pickle

    policy = pickle.loads(content)
    assert isinstance(policy, Policy)
    return policy
