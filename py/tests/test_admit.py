"""Admission by a Python function."""

from typing import Any

import pytest
import vellum
from conftest import SMALL

LOAD: dict[str, Any] = {**SMALL, "requests": 5_000, "request_size": "12K", "duplicates": 40, "zeros": 10}
DEDUP: dict[str, Any] = {**LOAD, "policy": "vellum:dedup"}


def test_admitting_nothing_turns_savings_off_and_all_changes_nothing() -> None:
    for options, off in (
        (DEDUP, {**DEDUP, "policy": "vellum"}),
        ({**LOAD, "policy": "vellum:compress", "sizes": "database"}, {**LOAD, "policy": "vellum", "sizes": "database"}),
    ):
        nothing = vellum.run("zipf", admit=lambda _write: False, **options)
        everything = vellum.run("zipf", admit=lambda _write: vellum.Admitted(), **options)
        with_, without = vellum.run("zipf", **options), vellum.run("zipf", **off)
        for name in ("written_data", "written_moved", "erases", "write_p99_ns", "virtual_seconds"):
            assert nothing[name] == without[name] and everything[name] == with_[name]
        assert nothing["written_data"] > everything["written_data"]
        assert "admission: by a policy of somebody's own" in nothing.details["notes"]


def test_writes_not_admitted_to_the_buffer_wait_for_the_flash() -> None:
    base: dict[str, Any] = {**LOAD, "policy": "base", "depth": 1}
    buffered = vellum.run("zipf", **base)
    through = vellum.run("zipf", admit=lambda _write: vellum.Admitted(buffer=False), **base)
    assert through["write_p50_ns"] > buffered["write_p50_ns"]
    assert through["written_moved"] == buffered["written_moved"]


def test_the_function_gets_the_contents_of_a_write() -> None:
    seen: dict[str, int] = {"blocks": 0, "zeros": 0, "again": 0, "last": 0}
    known: set[int] = set()

    def admit(write: vellum.Arrived) -> vellum.Admitted:
        assert write.lba >= 0 and write.now_ns >= seen["last"] and write.durable is False
        seen["last"] = write.now_ns
        seen["blocks"] += len(write.contents)
        for content in write.contents:
            seen["zeros"] += content == 0
            seen["again"] += content != 0 and content in known
            known.add(content)
        return vellum.Admitted(dedup=write.lba % 2 == 0)

    half = vellum.run("zipf", admit=admit, **DEDUP)
    assert seen["blocks"] == half.details["logical_blocks"] + 15_000
    assert seen["zeros"] > 1000 and seen["again"] > 3000 and seen["last"] > 0
    everything, nothing = (vellum.run("zipf", admit=lambda _write: said, **DEDUP) for said in (True, False))
    assert everything["written_data"] < half["written_data"] < nothing["written_data"]


def test_an_exception_ends_the_run() -> None:
    def tired(write: vellum.Arrived) -> bool:
        if write.now_ns > 0:
            raise ArithmeticError("no more")
        return True

    with pytest.raises(ArithmeticError, match="no more"):
        vellum.run("zipf", admit=tired, **{**DEDUP, "requests": 1_000_000_000})


@pytest.mark.parametrize("said", [None, "dedup", 1, (True, True, True), vellum.Admitted(dedup=3)])  # type: ignore[arg-type]
def test_nonsense_is_named(said: Any) -> None:
    with pytest.raises(vellum.OptionError, match="admit says vellum.Admitted, True or False, not"):
        vellum.run("zipf", admit=lambda _write: said, **DEDUP)


def test_it_needs_something_to_admit_to() -> None:
    with pytest.raises(vellum.OptionError, match="admit is a function of vellum.Arrived, not 3"):
        vellum.run("zipf", admit=3, **DEDUP)  # type: ignore[arg-type]
    for policy in ("vellum", "base:oftl"):
        with pytest.raises(vellum.RunError, match="nothing that writes could be admitted to"):
            vellum.run("zipf", admit=lambda _write: True, **{**DEDUP, "policy": policy})
