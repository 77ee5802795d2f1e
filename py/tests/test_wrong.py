"""What is wrong is said in Python's words, with what can be done."""

from pathlib import Path
from typing import Any

import pytest
import vellum
from conftest import SMALL


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"drive": "floppy"}, "there are caftl, oftl"),
        ({"drive": 7}, "a drive is a name, a path or a vellum.Drive, not 7"),
        ({"drive": "there/is/none.toml"}, "cannot read it"),
        ({"policy": "magic"}, "a policy begins with base, vellum"),
        ({"policy": 3}, "a policy is a name"),
        ({"policy": "vellum:replay"}, "replay is of blocks that a journal holds already"),
        ({"thta": 0.9}, "there is no option thta"),
        ({"theta": "much"}, "it is a number from 0 to 5"),
        ({"theta": [1]}, r"theta is a number or a text, not \[1\]"),
        ({"requests": -1}, "whole number"),
        ({"requests": True}, "requests is a number or a text, not True"),
        ({"fcfs": 1}, "fcfs is True or False, not 1"),
        ({"capacity": "1X"}, "is not a size"),
        ({"zeros": 60, "duplicates": 60}, "zeros and duplicates are more than all blocks"),
        ({"load": "uniform", "theta": 1}, "theta is of zipf, not of uniform"),
        ({"load": 5}, "a load is a name, a path, a vellum.Trace or a vellum.Jobs, not 5"),
        ({"format": "msr"}, "format"),
        ({"device": "emmc"}, "device: say it as drive="),
        ({"workload": "uniform"}, "workload: it is the first argument"),
        ({"fio": "job.fio"}, "fio: a job file is a load of its own"),
    ],
)
def test_options_are_checked(given: dict[str, Any], said: str) -> None:
    with pytest.raises(vellum.OptionError, match=said):
        vellum.run(**{"load": "zipf", **SMALL, **given})


def test_a_missing_or_invalid_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(vellum.TraceError, match="neither a trace's file nor a load; loads are .*zipf"):
        vellum.run("nowhere.csv", **SMALL)
    with pytest.raises(vellum.TraceError, match="nowhere.csv"):
        vellum.trace("nowhere.csv")
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader,\nthis is no trace.\n")
    with pytest.raises(vellum.TraceError, match="letter.txt"):
        vellum.run(letter, **SMALL)


def test_a_trace_that_was_read_is_not_read_otherwise(requests: Path) -> None:
    trace = vellum.trace(requests)
    with pytest.raises(vellum.OptionError, match="format: the trace is read already"):
        vellum.run(trace, format="msr", **SMALL)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"op": ["write"], "offset": [0]}, "bytes missing"),
        ({"op": ["write"], "offset": [0.5], "bytes": [4096]}, "whole numbers"),
        ({"op": ["write"], "offset": [0, 1], "bytes": [4096]}, "one length"),
    ],
)
def test_columns_of_a_trace_are_checked(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(vellum.OptionError, match=said):
        vellum.trace_of(columns)


def test_an_invalid_row_of_a_trace_is_named_with_its_line() -> None:
    with pytest.raises(vellum.TraceError, match="line 2"):
        vellum.trace_of({"op": ["write", "erase"], "offset": [0, 0], "bytes": [4096, 4096]})


def test_an_impossible_run_says_why() -> None:
    with pytest.raises(vellum.RunError, match="base: .*"):
        vellum.run("zipf", drive="emmc", policy="base", capacity="256M")
    with pytest.raises(vellum.RunError, match="woj and dmdedup"):
        vellum.run("zipf", policy="woj", **SMALL)
    done = vellum.compare("zipf", policies=["base", "woj"], requests=1000, **SMALL)
    assert [outcome.policy for outcome in done] == ["base"] and "block devices" in done.failed["woj"]


def test_a_custom_drive_is_checked() -> None:
    toml = vellum.drives()["emmc"].toml
    with pytest.raises(vellum.OptionError, match="line .*colour"):
        vellum.drive(toml + "\ncolour = 3\n")
    with pytest.raises(vellum.OptionError, match="nowhere.toml: it cannot be read"):
        vellum.drive(Path("nowhere.toml"))


def test_all_errors_are_of_one_kind() -> None:
    for kind in (vellum.OptionError, vellum.TraceError, vellum.RunError):
        assert issubclass(kind, vellum.Error)
