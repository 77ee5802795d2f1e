"""Victims chosen by a Python function."""

from typing import Any

import numpy as np
import pytest
import vellum
from conftest import SMALL


def greedy(blocks: vellum.Closed) -> Any:
    """The fewest valid pages; of those the first block."""
    return np.lexsort((blocks.block, blocks.valid))[0]


def test_a_custom_greedy_policy_equals_the_built_in() -> None:
    own = vellum.run("zipf", policy="base", victim=greedy, **SMALL)
    built_in = vellum.run("zipf", policy="base", **SMALL)
    assert dict(own) == dict(built_in)
    assert any("chosen" in note for note in own.details["notes"])


def test_another_choice_is_another_result() -> None:
    def oldest(blocks: vellum.Closed) -> Any:
        assert blocks.pages > 0 and (blocks.valid < blocks.pages).all()
        return blocks.age.argmax()

    own = vellum.run("zipf", policy="base", victim=oldest, **SMALL)
    assert own.write_amplification != vellum.run("zipf", policy="base", **SMALL).write_amplification


def test_an_exception_ends_the_run() -> None:
    def tired(_blocks: vellum.Closed) -> int:
        raise ArithmeticError("no more")

    with pytest.raises(ArithmeticError, match="no more"):
        vellum.run("zipf", policy="base", victim=tired, requests=1_000_000_000, **SMALL)


@pytest.mark.parametrize("said", [None, "first", 1.5, -1, 10**9])
def test_nonsense_is_named(said: Any) -> None:
    with pytest.raises(vellum.OptionError, match="a victim is the place of a block, here from 0 to "):
        vellum.run("zipf", policy="base", victim=lambda _blocks: said, **SMALL)


def test_it_needs_a_page_map_on_flash() -> None:
    with pytest.raises(vellum.OptionError, match="a function of vellum.Closed, not 3"):
        vellum.run("zipf", policy="base", victim=3, **SMALL)  # type: ignore[arg-type]
    with pytest.raises(vellum.RunError, match="take a policy that begins with base"):
        vellum.run("zipf", policy="vellum", victim=greedy, **SMALL)
