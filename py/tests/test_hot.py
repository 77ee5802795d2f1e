"""Hot and cold told apart by a Python function."""

from typing import Any

import numpy as np
import pytest
import vellum
from conftest import SMALL

OPTIONS: dict[str, Any] = {**SMALL, "policy": "base:hot-cold", "requests": 60_000}


def test_knowing_the_hot_pages_saves_moves() -> None:
    # Which pages are hot is drawn from the seed, so a first run counts them.
    writes = np.zeros(200 * 256, dtype=np.int64)

    def counts(page: int, was: bool | None) -> bool:
        writes[page] += was is None
        return False

    cold = vellum.run("zipf", hot=counts, **OPTIONS)
    # First the drive was filled, then the load was run.
    assert writes.sum() == len(writes) + 60_000 and cold["host_written"] == 60_000
    often = writes > 5
    knows = vellum.run("zipf", hot=lambda page, _was: often[page], **OPTIONS)
    assert knows["written_moved"] < cold["written_moved"]
    assert any("hot and cold" in note for note in knows.details["notes"])


def test_the_function_gets_where_a_page_was() -> None:
    seen = set()

    def hot(page: int, was: bool | None) -> bool:
        seen.add(was)
        return page % 2 == 0 if was is None else was

    own = vellum.run("zipf", hot=hot, victim=lambda blocks: blocks.valid.argmin(), **OPTIONS)
    assert seen == {None, True, False} and own["written_moved"] > 0
    assert sum("of somebody's own" in note for note in own.details["notes"]) == 2


def test_an_exception_ends_the_run() -> None:
    def tired(page: int, _was: bool | None) -> bool:
        if page == 70:
            raise ArithmeticError("no more")
        return True

    with pytest.raises(ArithmeticError, match="no more"):
        vellum.run("zipf", hot=tired, **{**OPTIONS, "requests": 1_000_000_000})


@pytest.mark.parametrize("said", [None, "hot", 1])
def test_nonsense_is_named(said: Any) -> None:
    with pytest.raises(vellum.OptionError, match=f"hot says True or False, not {said!r}"):
        vellum.run("zipf", hot=lambda _page, _was: said, **OPTIONS)


def test_it_needs_a_map_that_keeps_them_apart() -> None:
    with pytest.raises(vellum.OptionError, match="hot is a function of a page and of where it was, not 3"):
        vellum.run("zipf", hot=3, **OPTIONS)  # type: ignore[arg-type]
    for policy in ("base", "vellum"):
        with pytest.raises(vellum.RunError, match="take base:hot-cold"):
            vellum.run("zipf", hot=lambda _page, _was: True, **{**OPTIONS, "policy": policy})
