"""Runs: the figures of the command, as arrays."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import vellum
from conftest import SMALL
from vellum.table import of_csv


def test_a_run_gives_figures_steps_and_latencies() -> None:
    outcome = vellum.run("zipf", policy="base", theta=0.8, **SMALL)
    assert outcome.policy == "base"
    assert outcome.write_amplification == outcome["write_amplification"] > 1
    assert outcome["host_written"] == outcome.details["host_written"]
    steps = outcome.steps
    assert 64 <= steps.rows < 128 and (np.diff(steps["seconds"]) >= 0).all()
    assert steps["host_written_blocks"].dtype == np.int64
    assert outcome.write_latencies["share"][-1] == 1
    assert "base" in str(outcome) and "zipf" in outcome.about[-1]


def test_a_figure_may_be_larger_than_a_numpy_integer() -> None:
    # The bytes that a drive can take, if its blocks endure four billion erasures.
    table = of_csv(f"endurance_bytes,erases\n{2**63},1\n{2**63 - 1},{2**63 - 1}\n")
    assert table["endurance_bytes"].tolist() == [2.0**63, 2.0**63]
    assert table["erases"].tolist() == [1, 2**63 - 1]


def test_whole_second_times_get_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "tencent.csv"
    # Two requests a second.
    path.write_text("".join(f"{1538323200 + number // 2},{8 * number},8,1,7\n" for number in range(100)))
    said = "the trace's times are whole seconds"
    for depth in (None, 4):
        outcome = vellum.run(path, policy="base", format="tencent", depth=depth, **SMALL)
        assert [said in warning for warning in outcome.warnings] == ([True] if depth is None else [])


def test_options_have_python_names() -> None:
    plain = vellum.run("zipf", policy="base", requests=3000, **SMALL)
    flushed = vellum.run("zipf", policy="base", requests=3000, flush_every=10, **SMALL)
    assert plain["flush_mean_ns"] is None and flushed["flush_mean_ns"] is not None
    journaled = vellum.run("zipf", requests=3000, journal="data", async_commit=True, verify=False, daily=None, **SMALL)
    assert "journal" in journaled.about[-1]


def test_the_figures_are_those_of_the_command() -> None:
    command = os.environ.get("VELLUM")
    if command is None:
        pytest.skip("SKIP: VELLUM does not say where the command is")
    words = "lab run --workload zipf --drive oftl --capacity 256M --op 28 --precondition fill --seed 3 --policy base --json"
    told = subprocess.run([command, *words.split()], check=True, capture_output=True).stdout
    assert vellum.run("zipf", policy="base", **SMALL).details == json.loads(told)[0]


def test_a_comparison_is_a_table_and_the_same_on_any_number_of_threads() -> None:
    one, two = (
        vellum.compare("zipf", policies=["base", "vellum"], threads=threads, requests=5000, **SMALL)
        for threads in (1, 2)
    )
    assert [dict(outcome) for outcome in one] == [dict(outcome) for outcome in two]
    assert list(one.figures["policy"]) == ["base", "vellum"]
    frame = pd.DataFrame(one)
    assert list(frame["policy"]) == ["base", "vellum"] and frame["write_p99_ns"].dtype.kind in "if"
    # A figure that a run lacks is missing, not a number.
    assert np.isnan(one.steps["engine_segments"][0]) and not np.isnan(one.steps["engine_segments"][-1])
    assert "engine_segments" not in one[0].steps and "engine_segments" in one[1].steps


def test_without_policies_those_that_fit_are_compared() -> None:
    done = vellum.compare("uniform", requests=2000, **SMALL)
    assert {"base", "vellum"} <= {outcome.policy for outcome in done}
    assert all(isinstance(why, str) for why in done.failed.values())


def test_a_sweep_is_a_list_of_runs() -> None:
    runs = [vellum.run("uniform", policy="base", **{**SMALL, "op": op}) for op in (15, 28)]
    frame = pd.DataFrame(runs)
    assert frame["write_amplification"][0] > frame["write_amplification"][1]


def test_steps_go_to_pandas_and_arrow() -> None:
    steps = vellum.run("zipf", requests=5000, **SMALL).steps
    assert list(steps.to_pandas().columns) == list(steps)
    pa = pytest.importorskip("pyarrow", reason="SKIP: no pyarrow")
    table = pa.table(steps)
    assert table.num_rows == steps.rows and pa.RecordBatchReader.from_stream(steps).read_all() == steps.to_arrow()


def test_steps_go_to_parquet_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="SKIP: no pyarrow")
    done = vellum.compare("zipf", policies=["base", "vellum"], requests=5000, **SMALL)
    path = tmp_path / "course.parquet"
    done.steps.to_parquet(path)
    read = parquet.read_table(path)
    assert read == done.steps.to_arrow() and read.column_names == list(done.steps)
    # A count that the page map does not have is null, and names and whole numbers stay what they are.
    assert read["engine_segments"].null_count == done[0].steps.rows
    assert read["host_written_blocks"].to_pylist() == done.steps["host_written_blocks"].tolist()
    pd.testing.assert_frame_equal(pd.read_parquet(path), done.steps.to_pandas())
    with pytest.raises(vellum.Error, match="nowhere/course.parquet: it cannot be written: "):
        done.steps.to_parquet(tmp_path / "nowhere" / "course.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(vellum.Error, match="Parquet need pyarrow: pip install pyarrow"):
        done.steps.to_parquet(path)


def test_columns_of_several_kinds_go_to_arrow_as_text() -> None:
    pytest.importorskip("pyarrow", reason="SKIP: no pyarrow")
    mixed = vellum.Table(a=np.array([1, "auto", None], dtype=object), b=np.array([True, None, 2], dtype=object))
    assert mixed.to_arrow().to_pydict() == {"a": ["1", "auto", None], "b": ["True", None, "2"]}


@pytest.mark.parametrize("name", ["1e3", "nan", "true"])
def test_a_name_stays_what_it_is(name: str) -> None:
    own = vellum.Policy(name, victim=lambda blocks: blocks.valid.argmin())
    done = vellum.compare("zipf", policies=[own], requests=3000, **SMALL)
    assert done[0]["policy"] == done[0].policy == done.figures["policy"][0] == done.steps["policy"][0] == name


def test_a_custom_drive_is_run() -> None:
    known = vellum.drives()["oftl"]
    mine = vellum.drive(known.toml.replace(known.about, "mine alone"), name="mine")
    options = {**SMALL, "drive": mine}
    outcome = vellum.run("zipf", requests=3000, **options)
    assert outcome.about[0] == "mine: mine alone"
    assert dict(outcome) == dict(vellum.run("zipf", requests=3000, **SMALL))


def test_a_trace_is_read_once_and_run_often(requests: Path) -> None:
    trace = vellum.trace(requests)
    assert trace.summary["writes"] == 300 and trace.summary["reads"] == 100
    assert dict(vellum.run(trace, **SMALL)) == dict(vellum.run(requests, **SMALL))
    table = trace.requests
    assert table.rows == 400 and table["time_ns"][-1] - table["time_ns"][0] == 299_000_000
    assert pd.DataFrame(table)["op"].value_counts().to_dict() == {"write": 300, "read": 100}
    again = vellum.trace_of(table)
    for name, column in again.requests.items():
        # The disk is not kept.
        assert name == "disk" or (column == table[name]).all(), name
    # Only the load's name differs in the figures.
    assert {**vellum.run(again, **SMALL), "load": None} == {**vellum.run(trace, **SMALL), "load": None}
    table["durable"] = table["op"] == "write"
    assert (vellum.trace_of(table).requests["durable"] == table["durable"]).all()


def test_others_go_on_while_it_runs() -> None:
    count, over = 0, False

    def counts() -> None:
        nonlocal count
        while not over:
            count += 1
            time.sleep(0.001)

    other = threading.Thread(target=counts, daemon=True)
    other.start()
    seen: list[tuple[int, int]] = []
    counted: list[int] = []
    end = time.monotonic() + 60

    def went_on() -> bool:
        # If it could go on only during these calls, it would count to one or two between them.
        return len(counted) > 1 and counted[-1] - counted[-2] > 10

    def progress(done: int, all: int) -> None:
        seen.append((done, all))
        counted.append(count)
        if went_on() or time.monotonic() > end:
            raise StopIteration

    with pytest.raises(StopIteration):
        vellum.run("zipf", progress=progress, requests=1_000_000_000, **SMALL)
    over = True
    other.join()
    assert went_on()
    assert seen and all(done <= all for done, all in seen)


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """A shell that starts the tests in the background lets all of them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_it() -> None:
    interrupt = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupt.start()
        vellum.run("zipf", requests=1_000_000_000, **SMALL)
    assert time.monotonic() - start < 60


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("stubborn", [0, 1])
def test_ctrl_c_ends_a_function_that_does_not_return(stubborn: int) -> None:
    begun, left = threading.Event(), stubborn

    def forever(_page: int, _was: bool | None) -> bool:
        nonlocal left
        while True:
            try:
                begun.set()
                while True:
                    pass
            except KeyboardInterrupt:
                left -= 1
                if left < 0:
                    raise

    def interrupt() -> None:
        begun.wait()
        for _ in range(1 + stubborn):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        try:
            vellum.run("zipf", policy="base:hot-cold", hot=forever, **SMALL)
        finally:
            # What comes late must not end the tests.
            thread.join()
    assert left == -1


def test_an_exception_of_the_progress_ends_it() -> None:
    def enough(_done: int, _all: int) -> None:
        raise StopIteration("enough")

    with pytest.raises(StopIteration, match="enough"):
        vellum.run("zipf", progress=enough, requests=1_000_000_000, **SMALL)


def test_tenants_share_a_drive(requests: Path, tmp_path: Path) -> None:
    alone = vellum.run(requests, policy="base", **SMALL)
    trace = vellum.trace(requests)
    both = vellum.run({"one": requests, "two": trace}, policy="base", **SMALL)
    one, two = both.details["tenants"]
    assert (one["name"], two["name"]) == ("one", "two")
    assert one["host_written"] == two["host_written"] == alone["host_written"] == 300
    assert both["host_written"] == 600 == 2 * both["tenant_one_host_written"]
    assert both["tenant_two_read_p99_ns"] > 0 and two["first_block"] == one["blocks"]
    compared = vellum.compare({"one": trace}, policies=["base", "vellum"], **SMALL)
    assert [outcome["tenant_one_requests"] for outcome in compared] == [400, 400]


def test_invalid_tenants_are_refused(requests: Path) -> None:
    for load, said in [
        ({}, "at least one"),
        ({1: requests}, "by name"),
        ({"a b": requests}, "no tenant's name"),
        ({"a": "zipf"}, "a tenant's load is a trace"),
        ({"a": 5}, "a path or a vellum.Trace"),
    ]:
        with pytest.raises(vellum.Error, match=said):
            vellum.run(load, policy="base", **SMALL)  # type: ignore[arg-type]
    with pytest.raises(vellum.OptionError, match="tenants are a load"):
        vellum.run(requests, tenant="a=b", **SMALL)  # type: ignore[call-arg]
