"""Sweeps in this process: what they go over, what they keep, what they refuse."""

import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vellum
import vellum.workers
from conftest import SMALL
from vellum.task import Answer, Task, do

SHORT: dict[str, Any] = {key: value for key, value in SMALL.items() if key != "drive"} | {"requests": 3000}


def text(sweep: vellum.Sweep) -> str:
    return str(sweep.to_pandas().to_csv())


def small(**more: Any) -> vellum.Sweep:
    return vellum.sweep(["zipf", "uniform"], ["oftl"], ["base", "vellum"], **{**SHORT, **more})


def test_a_sweep_combines_every_drive_load_and_policy() -> None:
    other = vellum.drive(vellum.drives()["oftl"].toml, name="other")
    loads = {"hot": ("zipf", {"theta": 1.1}), "even": "uniform"}
    sweep = vellum.sweep(loads, ["oftl", other], ["base", "vellum"], vary={"depth": np.array([1, 8])}, **SHORT)
    assert len(sweep) == 16
    seen = [ran.point for ran in sweep]
    assert len(seen) == 16 and {"drive": "other", "load": "hot", "policy": "base", "depth": 8} in seen
    frame = pd.DataFrame(sweep.figures)
    assert list(frame.columns[:4]) == ["drive", "load", "policy", "depth"]
    assert list(frame["depth"][:4]) == [1, 8, 1, 8] and frame["depth"].dtype == np.int64
    # One of its runs equals a separate run.
    alone = vellum.run("zipf", "oftl", "vellum", theta=1.1, depth=8, **SHORT)
    row = frame[(frame["drive"] == "oftl") & (frame["load"] == "hot") & (frame["policy"] == "vellum")]
    assert row["write_amplification"].iloc[1] == alone.write_amplification
    ran = next(ran for ran in sweep if ran.point == {"drive": "oftl", "load": "hot", "policy": "vellum", "depth": 8})
    assert ran.outcome is not None and dict(ran.outcome) == dict(alone)
    assert ran.outcome.details == alone.details and str(ran.outcome) == str(alone)
    assert ran.outcome.about[0] == alone.about[0]


def test_threads_and_order_do_not_matter() -> None:
    assert text(small(threads=1)) == text(small(threads=3))


def test_runs_come_as_they_are_done_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    last, told = threading.Event(), []

    def first_comes_last(task: Task, heed: Any) -> Answer:
        if task.policy == "base" and "--workload=zipf" in task.options:
            assert last.wait(20)
        return do(task, heed)

    monkeypatch.setattr(vellum.workers, "do", first_comes_last)
    sweep = small(threads=2, progress=lambda done, all: told.append((done, all)))
    for number, ran in enumerate(sweep):
        if number == 2:
            last.set()
        assert (ran.point == {"drive": "oftl", "load": "zipf", "policy": "base"}) == (number == 3)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert sweep.figures["load"].tolist() == ["zipf", "zipf", "uniform", "uniform"]
    assert len(list(sweep)) == 4


def test_kept_results_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept"
    first = small(cache=folder)
    before = text(first)
    assert not any(ran.kept for ran in first) and len(list(folder.iterdir())) == 4
    again = small(cache=folder)
    assert all(ran.kept for ran in again) and text(again) == before
    # A changed parameter is a new task, and so are another drive under its name and another build.
    assert not any(ran.kept for ran in small(cache=folder, seed=4))
    slow = vellum.drive(vellum.drives()["oftl"].toml.replace("read-us = 50", "read-us = 60"), name="oftl")
    assert slow != vellum.drives()["oftl"]
    mine = vellum.sweep("zipf", slow, "base", cache=folder, **SHORT)
    assert not any(ran.kept for ran in mine)
    partly = vellum.sweep("zipf", "oftl", ["base", "base:fifo"], cache=folder, **SHORT)
    assert {ran.point["policy"]: ran.kept for ran in partly} == {"base": True, "base:fifo": False}
    monkeypatch.setattr("vellum.task.engine", lambda: "another")
    assert not any(ran.kept for ran in vellum.sweep("zipf", "oftl", "base", cache=folder, **SHORT))


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other", "folder"])
def test_damaged_results_are_noticed_and_run_again(tmp_path: Path, damage: str) -> None:
    before = text(small(cache=tmp_path))
    one, other, *_ = sorted(tmp_path.iterdir())
    content = one.read_bytes()
    if damage == "cut":
        one.write_bytes(content[:-7])
    elif damage == "bit":
        one.write_bytes(content[:200] + bytes([content[200] ^ 4]) + content[201:])
    elif damage == "empty":
        one.write_bytes(b"")
    elif damage == "other":
        one.write_bytes(other.read_bytes())
    else:
        one.unlink()
        one.mkdir()
    again = small(cache=tmp_path)
    with pytest.warns(UserWarning) as told:
        runs = list(again)
    assert one.name in str(told[0].message) and "run again" in str(told[0].message)
    assert [str(warning.message) for warning in told[1:]] == (
        [f"cache: {one}: Is a directory: results are not kept"] if damage == "folder" else []
    )
    assert [ran.kept for ran in runs].count(False) == 1 and text(again) == before
    if damage != "folder":
        assert one.read_bytes() == content and all(ran.kept for ran in small(cache=tmp_path))


def test_an_abandoned_sweep_can_be_continued_or_closed() -> None:
    sweep = small()
    first = next(iter(sweep))
    assert [ran.point for ran in sweep][0] == first.point and len(list(sweep)) == 4
    ended = small(threads=1)
    next(iter(ended))
    ended.close()
    with pytest.raises(vellum.RunError, match="closed, or has failed"):
        ended.figures  # noqa: B018


def test_a_trace_is_identified_by_its_content(
    requests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SMALL, "cache": tmp_path / "kept"}
    drive = options.pop("drive")
    read: list[Any] = []
    monkeypatch.setattr("vellum.axes.trace", lambda *path, **how: read.append(path) or vellum.trace(*path, **how))
    first = vellum.sweep(requests, drive, ["base", "vellum"], format="msr", **options)
    assert read == [(requests,)]
    assert first.figures["load"].tolist() == ["requests.csv"] * 2
    alone = vellum.run(requests, drive, "vellum", **SHORT | {"requests": None})
    assert next(ran for ran in first if ran.point["policy"] == "vellum").outcome == alone
    elsewhere = tmp_path / "elsewhere" / "requests.csv"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(requests.read_bytes())
    trace = vellum.trace(elsewhere, format="msr")
    assert all(ran.kept for ran in vellum.sweep({"moved": trace}, drive, ["base", "vellum"], **options))
    elsewhere.write_text("".join(elsewhere.read_text().splitlines(True)[:-40]))
    assert not any(ran.kept for ran in vellum.sweep(elsewhere, drive, "base", format="msr", **options))
    columns = {"op": ["write"] * 9, "offset": np.arange(9) * 4096, "bytes": [4096] * 9}
    of_arrays = [vellum.sweep(vellum.trace_of(columns), drive, "base", **options) for _ in range(2)]
    assert [ran.kept for sweep in of_arrays for ran in sweep] == [False, True]


def test_tenants_are_a_load_of_a_sweep(requests: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"capacity": "256M", "op": 28, "precondition": "fill"}
    other = tmp_path / "other.csv"
    other.write_text("".join(requests.read_text().splitlines(True)[:200]))
    loads = {"both": {"one": requests, "two": vellum.trace(other)}, "alone": {"one": requests}, "plain": requests}
    sweep = vellum.sweep(loads, "oftl", ["base", "vellum"], cache=tmp_path / "kept", **options)
    assert not sweep.failed
    for ran in sweep:
        assert ran.outcome is not None and not ran.kept
        if ran.point["load"] != "plain":
            assert ran.outcome == vellum.run(loads[ran.point["load"]], "oftl", ran.point["policy"], **options)
    figures = sweep.to_pandas().set_index(["load", "policy"])
    assert figures["tenant_one_host_written"]["both", "base"] == 300 == figures["host_written"]["plain", "base"]
    assert figures["host_written"]["both", "base"] == 450
    # They are known by their contents and their names, not by their paths.
    moved = tmp_path / "moved" / requests.name
    moved.parent.mkdir()
    moved.write_bytes(requests.read_bytes())
    for tenants, kept in (({"one": moved, "two": other}, True), ({"uno": moved, "two": other}, False), ({"one": other, "two": moved}, False)):
        again = vellum.sweep({"again": tenants}, "oftl", "base", cache=tmp_path / "kept", **options)
        assert [ran.kept for ran in again] == [kept]


def test_invalid_tenants_of_a_sweep_are_named(requests: Path) -> None:
    trace = vellum.trace(requests)
    for tenants, more, said in [
        ({"a": "zipf"}, {}, "a tenant's load is a trace.*load=both"),
        ({"a b": trace}, {}, "no tenant's name.*load=both"),
        ({"a": trace}, {"format": "msr"}, "format: the trace is read already"),
    ]:
        with pytest.raises(vellum.Error, match=said):
            vellum.sweep({"both": tenants}, "oftl", "base", **more)
    read = vellum.sweep({"both": {"a": requests}}, "oftl", "base", format="msr", capacity="256M", op=28)
    assert not read.failed


def events(*times: int) -> bytes:
    """A processor's file of blktrace: a write of 4 KiB at each time."""
    queued, write = 1 << 20 | 1, 1 << 17
    event = struct.Struct("<IIQQIIIIIHH")
    return b"".join(event.pack(0x65617407, 1, at, 8 * at, 4096, queued | write, 7, 8 << 20 | 1, 0, 0, 0) for at in times)


def test_a_traces_content_is_all_of_its_files(tmp_path: Path) -> None:
    drive, options = SMALL["drive"], {"capacity": "256M", "op": 28, "precondition": "none", "cache": tmp_path / "kept"}
    first, second = tmp_path / "sda.blktrace.0", tmp_path / "sda.blktrace.1"
    first.write_bytes(events(1000, 4000))
    sweep = vellum.sweep(first, drive, "base", **options)
    assert [ran.kept for ran in sweep] == [False] and sweep.figures["host_written"].tolist() == [2]
    second.write_bytes(events(2000, 3000))
    for kept in (False, True):
        again = vellum.sweep(first, drive, "base", **options)
        assert [ran.kept for ran in again] == [kept] and again.figures["host_written"].tolist() == [4]
    # A worker that does not see all of them.
    sweep = vellum.sweep(first, drive, "vellum", **options)
    second.unlink()
    vellum.task._READ._known.clear()
    (ran,) = sweep.failed
    assert "sda.blktrace.0 has changed since the sweep began" in ran.why


def test_a_trace_that_changed_after_it_was_read_is_not_run(requests: Path, tmp_path: Path) -> None:
    drive, options = SMALL["drive"], {"capacity": "256M", "op": 28, "precondition": "none", "cache": tmp_path / "kept"}
    trace = vellum.trace(requests)
    requests.write_text(requests.read_text() * 2)
    with pytest.raises(vellum.TraceError, match="requests.csv has changed since it was read"):
        vellum.sweep(trace, drive, "base", **options)
    with pytest.raises(vellum.Error, match="the trace has changed since it was read"):
        vellum.run(trace, drive, "base", capacity="256M", op=28)
    # If a process has read another file with the same content, it reads again when that file changes.
    copy = tmp_path / "copy.csv"
    copy.write_bytes(requests.read_bytes())
    sweep = vellum.sweep(copy, drive, "base", **options)
    elsewhere = vellum.sweep(requests, drive, "base", **options)
    assert sweep._plan.tasks[0].trace[0] == elsewhere._plan.tasks[0].trace[0]
    requests.unlink()
    assert not sweep.failed


def test_a_trace_that_changes_meanwhile_is_noticed(requests: Path) -> None:
    drive = SMALL["drive"]
    sweep = vellum.sweep(requests, drive, "base", capacity="256M", op=28)
    requests.write_text(requests.read_text() + requests.read_text())
    vellum.task._READ._known.clear()
    (ran,) = sweep.failed
    assert "requests.csv has changed since the sweep began" in ran.why


def test_a_run_that_the_lab_refuses_fails_and_the_others_go_on() -> None:
    sweep = vellum.sweep("zipf", "oftl", ["base", "woj"], **SHORT)
    assert sweep.figures["policy"].tolist() == ["base"]
    (failed,) = sweep.failed
    assert failed.point["policy"] == "woj" and failed.outcome is None and "block devices" in failed.why


@pytest.mark.parametrize("retries", [0, 2])
def test_a_run_that_raises_is_tried_again(retries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def raises(task: Task, heed: Any) -> Answer:
        tried.append(task.policy)
        if task.policy == "vellum":
            raise MemoryError("no room")
        return do(task, heed)

    monkeypatch.setattr(vellum.workers, "do", raises)
    sweep = vellum.sweep("zipf", "oftl", ["base", "vellum"], retries=retries, **SHORT)
    (failed,) = sweep.failed
    assert failed.why == f"MemoryError: no room (tried {retries + 1} times)"
    assert sweep.figures.rows == 1 and tried.count("vellum") == retries + 1 and tried.count("base") == 1


def test_closing_ends_running_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    def enough(_done: int, _all: int) -> None:
        raise Enough

    # The others would take hours.
    many = {"requests": [1000, 10**10, 10**10 + 1]}
    options = {key: value for key, value in SHORT.items() if key != "requests"}
    sweep = vellum.sweep("zipf", "oftl", "base", vary=many, threads=3, progress=enough, **options)
    with pytest.raises(Enough):
        list(sweep)
    sweep.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"drives": ["oftl", "floppy"]}, "drive 'floppy': there are caftl"),
        ({"drives": []}, "drives: the list is empty"),
        ({"drives": 7}, "drives: they are a list, not 7"),
        ({"drives": ["oftl", "oftl"]}, "drive: 'oftl' is there twice"),
        ({"policies": ["base", "magic"]}, "a policy begins with .*in the run drive=oftl, load=zipf, policy=magic"),
        ({"policies": ["base", 3]}, "a policy is a name"),
        ({"policies": []}, "policies: the list is empty"),
        ({"loads": []}, "loads: the list is empty"),
        ({"loads": {}}, "loads: the list is empty"),
        ({"loads": [("zipf", {})]}, "one with options has a name, in a dictionary"),
        ({"loads": {"a": ("zipf", {}, 3)}}, "load a: it is a load, or one and its options"),
        ({"loads": {"a": ("zipf", {"seed": 4})}}, "load a: seed: its own option, and one of all runs"),
        ({"loads": {"a": ("zipf", {"thta": 4})}}, "there is no option thta: did you mean theta.*load=a"),
        ({"loads": {1: "zipf"}}, "a name is a text, not 1"),
        ({"loads": [5]}, "a load is a name, a path, a vellum.Trace or a vellum.Jobs, not 5"),
        ({"vary": {"depth": []}}, "vary: depth: the list is empty"),
        ({"vary": {"depth": 7}}, "vary: depth: they are a list, not 7"),
        ({"vary": {"seed": [1]}}, "vary: seed has a value for all runs as well"),
        ({"vary": {"policy": ["base"]}}, "vary: policy has a parameter of its own"),
        ({"vary": {"device": ["emmc", "oftl"]}}, "device: say it as drive=.*in the run .*device=emmc"),
        ({"vary": {"workload": ["uniform"]}}, "workload: it is the first argument"),
        ({"vary": {"depth": [1, "many"]}}, "depth.*in the run .*depth=many"),
        ({"loads": ["zipf", "uniform"], "vary": {"theta": [1.0]}}, "theta is of zipf, not of uniform.*load=uniform"),
        ({"retries": -1}, "retries is a number from 0 on, not -1"),
        ({"threads": 0}, "threads is a number from 1 on, not 0"),
        ({"client": "tcp://10.0.0.1:8786"}, "client is a dask.distributed.Client, not 'tcp"),
        ({"cache": "/proc/nowhere"}, "cache /proc/nowhere: it is no folder to write to"),
    ],
)
def test_errors_are_named_before_anything_is_run(
    given: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vellum.workers, "do", None)
    with pytest.raises(vellum.OptionError, match=said):
        vellum.sweep(**{"loads": "zipf", "drives": "oftl", "policies": "base", **SHORT, **given})


def test_an_unknown_load_is_named() -> None:
    with pytest.raises(vellum.TraceError, match="'nowhere.csv' is neither a trace's file nor a load"):
        vellum.sweep(["zipf", "nowhere.csv"], "oftl", "base", **SHORT)

