"""Job files of fio as loads."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import vellum
from conftest import SMALL

ONE = """
[writers]
rw=randwrite
bs=4k
size=64m
number_ios=20000
iodepth=8
ioengine=libaio
randrepeat=0
"""
TWO = """
[global]
ioengine=libaio
size=48m
[readers]
rw=randread
[writers]
rw=randwrite
"""
OPTIONS: dict[str, Any] = {key: value for key, value in SMALL.items() if key != "drive"}


def test_a_job_file_is_a_load(tmp_path: Path) -> None:
    path = tmp_path / "jobs.fio"
    path.write_text(ONE)
    jobs = vellum.fio(path)
    assert jobs == vellum.fio(str(path)) == vellum.Jobs("jobs.fio", ONE)
    outcome = vellum.run(jobs, "oftl", "base", **OPTIONS)
    assert outcome["host_written"] == 16_384 and any("writers" in line for line in outcome.about)
    # It is its text, wherever that came from.
    path.unlink()
    assert dict(vellum.run(vellum.fio(ONE), "oftl", "base", **OPTIONS)) == dict(outcome)
    assert vellum.fio(ONE).name == "writers"


def test_jobs_beside_each_other_are_told_apart() -> None:
    done = vellum.compare(vellum.fio(TWO), "oftl", ["base", "vellum"], **OPTIONS)
    assert [outcome.policy for outcome in done] == ["base", "vellum"] and not done.failed
    names = [tenant["name"] for tenant in done[0].details["tenants"]]
    assert names == ["readers", "writers"]


def test_the_figures_are_those_of_the_command(tmp_path: Path) -> None:
    command = os.environ.get("VELLUM")
    if command is None:
        pytest.skip("SKIP: VELLUM does not say where the command is")
    path = tmp_path / "jobs.fio"
    for text in (ONE, TWO):
        path.write_text(text)
        words = f"lab run --fio {path} --drive oftl --capacity 256M --op 28 --precondition fill --seed 3 --policy base --json"
        told = subprocess.run([command, *words.split()], check=True, capture_output=True).stdout
        assert vellum.run(vellum.fio(path), "oftl", "base", **OPTIONS).details == json.loads(told)[0]


def test_jobs_go_over_a_sweep(tmp_path: Path) -> None:
    jobs = vellum.fio(ONE)
    varied = {key: value for key, value in OPTIONS.items() if key != "seed"}
    for kept in (False, True):
        sweep = vellum.sweep([jobs, "uniform"], "oftl", "base", vary={"seed": [1, 2]}, cache=tmp_path, **varied)
        assert not sweep.failed and [ran.kept for ran in sweep] == [kept] * 4
    assert sweep.figures["load"].tolist() == ["writers"] * 2 + ["uniform"] * 2
    group = vellum.Group("a", 20, jobs, 1.5, drive="oftl")
    fleet = vellum.fleet([group], ["base"], repeats=2, capacity="128M", op=28, precondition="load")
    assert fleet.drives.rows == 20


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("[a]\nrw=sideways\nsize=1m\n", "^job file: line 2: rw: "),
        ("[a]\nrw=write\n", "job file: line 1: "),
        ("nowhere.fio", "job file nowhere.fio: it cannot be read"),
        (7, "a job file is a path or a text, not 7"),
    ],
)
def test_an_invalid_job_file_is_named(file: Any, said: str) -> None:
    with pytest.raises(vellum.OptionError, match=said):
        vellum.fio(file)


def test_jobs_hold_a_text_and_no_path(tmp_path: Path) -> None:
    path = tmp_path / "jobs.fio"
    path.write_text(ONE)
    # The file could change, and workers have their own.
    with pytest.raises(vellum.OptionError, match="jobs mine: .*vellum.fio reads a file"):
        vellum.Jobs("mine", str(path))
    assert vellum.Jobs("mine", ONE).text == ONE


def test_options_of_other_loads_do_not_go_with_it() -> None:
    jobs = vellum.fio(ONE)
    for more in ({"depth": 4}, {"repeat": 2}):
        with pytest.raises(vellum.OptionError, match="cannot be used with"):
            vellum.run(jobs, "oftl", "base", **OPTIONS, **more)
    assert vellum.fio(ONE).passed_over == ["randrepeat"]
