"""How far something has come, shown to who waits for it."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vellum
from conftest import SMALL

LONG: dict[str, Any] = {**SMALL, "requests": 300_000, "progress": True}
"""Some seconds, so that there is something to tell."""


def without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tqdm" else found(name))


def test_a_run_shows_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm", reason="SKIP: no tqdm")
    outcome = vellum.run("zipf", policy="base", **LONG)
    said = capsys.readouterr().err
    assert "zipf, base: 100%|" in said and "300k/300k" in said and " requests/s" in said
    assert dict(outcome) == dict(vellum.run("zipf", policy="base", **{**LONG, "progress": False}))
    assert capsys.readouterr().err == ""


def test_a_bar_may_be_disabled(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm", reason="SKIP: no tqdm")
    # tqdm reads its variables when it is imported.
    code = "import vellum; print(vellum.run('zipf', 'oftl', 'base', capacity='128M', op=28, requests=300_000, progress=True).policy)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TQDM_DISABLE": "1"}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("base\n", "")


def test_without_tqdm_it_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    without_tqdm(monkeypatch)
    done = vellum.compare("zipf", policies=["base", "base:fifo"], **LONG)
    assert len(done) == 2
    said = capsys.readouterr().err
    assert said.endswith("\rzipf: 100% of 600000 requests\n") and said.count("\n") == 1
    # Each share is told once.
    told = [line.strip() for line in said.split("\r")]
    assert len(told) == len(set(told))


@pytest.mark.parametrize("tqdm", [True, False])
def test_a_sweep_and_a_fleet_show_their_runs(
    tqdm: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if tqdm:
        pytest.importorskip("tqdm", reason="SKIP: no tqdm")
    else:
        without_tqdm(monkeypatch)
    options: dict[str, Any] = {"capacity": "128M", "op": 28, "precondition": "fill", "progress": True}
    sweep = vellum.sweep("zipf", "oftl", ["base", "vellum"], vary={"depth": [1, 4]}, requests=1000, **options)
    # It begins when it is asked for.
    assert capsys.readouterr().err == ""
    assert sweep.figures.rows == 4
    said = capsys.readouterr().err
    assert re.search(r"sweep: 100%\|.* 4/4 " if tqdm else "sweep: 100% of 4 runs\n$", said)
    group = vellum.Group("hot", 40, ("zipf", {"theta": 1.1}), 1.5, drive="oftl")
    vellum.fleet([group], ["base"], repeats=2, **options)
    assert re.search(r"fleet: 100%\|.* 2/2 " if tqdm else "fleet: 100% of 2 runs\n$", capsys.readouterr().err)


def test_reading_a_trace_has_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_tqdm(monkeypatch)
    path = tmp_path / "long.csv"
    path.write_text("".join(f"{128166372003061629 + at},host,0,Write,{at % 9 * 4096},4096,5\n" for at in range(400_000)))
    vellum.trace(path, progress=True)
    assert capsys.readouterr().err.endswith(f"\rreading long.csv: 100% of {path.stat().st_size} bytes\n")


def test_a_run_that_ends_early_is_not_told_as_done(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    without_tqdm(monkeypatch)
    calls = 0

    def tired(_blocks: vellum.Closed) -> int:
        nonlocal calls
        calls += 1
        if calls == 500:
            raise ArithmeticError("no more")
        return 0

    with pytest.raises(ArithmeticError):
        vellum.run("zipf", policy="base", victim=tired, **{**LONG, "requests": 1_000_000_000})
    said = capsys.readouterr().err
    assert "100%" not in said


@pytest.mark.parametrize("progress", [3, "yes"])
def test_nonsense_is_refused(progress: Any) -> None:
    said = "progress is True, or a function of two numbers, not"
    with pytest.raises(vellum.OptionError, match=said):
        vellum.run("zipf", policy="base", progress=progress, **SMALL)
    with pytest.raises(vellum.OptionError, match=said):
        vellum.sweep("zipf", "oftl", "base", progress=progress)
    with pytest.raises(vellum.OptionError, match=said):
        vellum.trace("requests.csv", progress=progress)
