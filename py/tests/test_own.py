"""Policies of one's own beside the built-in ones: in a comparison, a sweep and a fleet."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vellum
from conftest import SMALL
from vellum.task import do, task

SHORT: dict[str, Any] = {key: value for key, value in SMALL.items() if key != "drive"} | {"requests": 30_000}


def greedy(blocks: vellum.Closed) -> Any:
    """The fewest valid pages; of those the first block."""
    return np.lexsort((blocks.block, blocks.valid))[0]


def oldest(blocks: vellum.Closed) -> Any:
    return blocks.age.argmax()


OWN = vellum.Policy("greedy by hand", victim=greedy)


class Counting:
    """Calls the first pages that it sees hot, so what it says depends on what it was asked before."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _page: int, _was: bool | None) -> bool:
        self.calls += 1
        return self.calls % 17_000 < 4_000


def without(name: str, outcome: vellum.Outcome) -> dict[str, Any]:
    return {key: value for key, value in outcome.items() if key != name}


def test_a_comparison_has_own_policies_beside_built_in_ones() -> None:
    old = vellum.Policy("oldest", victim=oldest)
    done = vellum.compare("zipf", policies=["base", OWN, old, "base:fifo"], **SMALL)
    assert [outcome.policy for outcome in done] == ["base", "greedy by hand", "oldest", "base:fifo"]
    assert without("policy", done[0]) == without("policy", done[1])
    assert dict(done[2]) == {**vellum.run("zipf", policy="base", victim=oldest, **SMALL), "policy": "oldest"}
    assert done[2].write_amplification != done[0].write_amplification
    assert list(done.figures["policy"])[1] == done[1].details["policy"] == "greedy by hand" and "oldest" in str(done)
    assert dict(vellum.run("zipf", policy=old, **SMALL)) == dict(done[2])


def test_one_that_cannot_be_run_is_named_and_the_others_go_on() -> None:
    wrong = vellum.Policy("mine", "vellum", victim=greedy)
    done = vellum.compare("zipf", policies=["base", wrong], requests=1000, **SMALL)
    assert [outcome.policy for outcome in done] == ["base"]
    assert list(done.failed) == ["mine"] and "take a policy that begins with base" in done.failed["mine"]


def test_what_a_function_raises_ends_a_comparison() -> None:
    def tired(_blocks: vellum.Closed) -> int:
        raise ArithmeticError("no more")

    with pytest.raises(ArithmeticError, match="no more"):
        policies = [vellum.Policy("tired", victim=tired), "base"]
        vellum.compare("zipf", policies=policies, **{**SMALL, "requests": 1_000_000_000})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ""}, "a policy's name is a text of one line, not ''"),
        ({"name": "a\nb"}, "a policy's name is a text of one line"),
        ({"policy": 3}, "policy mine: policy is a name, like 'base:cost-benefit', not 3"),
        ({"victim": None}, "policy mine: it has none of victim, hot and admit"),
        ({"victim": 3}, "a victim policy is a function of vellum.Closed, not 3"),
        ({"hot": 3}, "hot is a function"),
        ({"admit": 3}, "admit is a function"),
        ({"version": 1}, "policy mine: its version is a text, not 1"),
    ],
)
def test_an_own_policy_is_checked(given: dict[str, Any], said: str) -> None:
    with pytest.raises(vellum.OptionError, match=said):
        vellum.Policy(**{"name": "mine", "victim": greedy, **given})


def test_invalid_use_is_refused() -> None:
    with pytest.raises(vellum.OptionError, match="policies: 'base' is there twice"):
        vellum.compare("zipf", policies=["base", vellum.Policy("base", victim=greedy)], **SMALL)
    with pytest.raises(vellum.OptionError, match="policies are a list of names and vellum.Policy"):
        vellum.compare("zipf", policies=OWN, **SMALL)  # type: ignore[arg-type]
    with pytest.raises(vellum.OptionError, match="policy greedy by hand has functions of its own"):
        vellum.run("zipf", policy=OWN, victim=oldest, **SMALL)
    with pytest.raises(vellum.OptionError, match="a policy begins with base, vellum"):
        vellum.run("zipf", policy=vellum.Policy("mine", "magic", victim=greedy), **SMALL)


cloudpickle = pytest.mark.skipif(importlib.util.find_spec("cloudpickle") is None, reason="SKIP: no cloudpickle")


@pytest.mark.parametrize("copies", [pytest.param(True, marks=cloudpickle), False])
def test_policies_of_a_comparison_that_share_a_function_do_not_depend_on_threads(
    copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not copies:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    options: dict[str, Any] = {**SHORT, "capacity": "128M", "requests": 5_000}

    def both(threads: int) -> list[dict[str, Any]]:
        one = Counting()
        policies = [vellum.Policy("first", "base:hot-cold", hot=one), vellum.Policy("second", "base:hot-cold", hot=one)]
        done = vellum.compare("zipf", "oftl", policies, threads=threads, **options)
        assert (one.calls == 0) == copies
        return [without("policy", outcome) for outcome in done]

    one, two = both(1), both(2)
    assert one == two
    assert (one[0] == one[1]) == copies


@cloudpickle
def test_each_run_of_a_sweep_has_its_own_copy_of_the_functions() -> None:
    counting = vellum.Policy("counting", "base:hot-cold", hot=Counting())
    sweeps = [
        vellum.sweep("zipf", "oftl", ["base", counting], vary={"depth": [1, 4, 8]}, threads=threads, **SHORT)
        for threads in (1, 3)
    ]
    one, three = (str(sweep.to_pandas().to_csv()) for sweep in sweeps)
    assert one == three and not sweeps[0].failed
    assert isinstance(counting.hot, Counting) and counting.hot.calls == 0
    alone = vellum.run("zipf", "oftl", vellum.Policy("counting", "base:hot-cold", hot=Counting()), depth=4, **SHORT)
    (ran,) = [ran for ran in sweeps[0] if ran.point["policy"] == "counting" and ran.point["depth"] == 4]
    assert ran.outcome is not None and dict(ran.outcome) == dict(alone)


@cloudpickle
def test_no_copy_shares_its_class_with_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    monkeypatch.setitem(__main__.__dict__, "Shared", None)
    # As a notebook defines it: it is pickled by value, and counts in its class.
    exec(
        "class Shared:\n"
        "    calls, inner = 0, []\n"
        "    def __call__(self, _page, _was):\n"
        "        Shared.calls += 1\n"
        "        self.inner.append(0)\n"
        "        return (Shared.calls + len(self.inner)) % 18_000 < 4_000\n",
        __main__.__dict__,
    )
    shared = __main__.Shared  # type: ignore[attr-defined]
    own = vellum.Policy("shared", "base:hot-cold", hot=shared())
    shared.calls, shared.inner = 7, [0]
    short = {**SHORT, "capacity": "128M", "requests": 5_000}
    sweeps = [
        vellum.sweep("zipf", "oftl", own, vary={"depth": [1, 4, 8]}, threads=threads, **short) for threads in (1, 3)
    ]
    one, three = (str(sweep.to_pandas().to_csv()) for sweep in sweeps)
    assert one == three and not sweeps[0].failed
    assert (shared.calls, shared.inner) == (7, [0])


@cloudpickle
def test_an_exception_of_a_copy_is_of_the_callers_class(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    for name in ("Tired", "tired"):
        monkeypatch.setitem(__main__.__dict__, name, None)
    exec("class Tired(Exception): pass\ndef tired(_blocks): raise Tired", __main__.__dict__)
    with pytest.raises(__main__.Tired):  # type: ignore[attr-defined]
        vellum.compare("zipf", "oftl", [vellum.Policy("tired", victim=__main__.tired)], **SHORT)  # type: ignore[attr-defined]


@cloudpickle
def test_results_are_kept_by_the_version_of_the_functions(tmp_path: Path) -> None:
    def kept(version: str | None) -> list[bool]:
        own = vellum.Policy("mine", victim=greedy, version=version)
        sweep = vellum.sweep("zipf", "oftl", ["base", own], cache=tmp_path, **SHORT)
        assert not sweep.failed
        return [{ran.point["policy"]: ran.kept for ran in sweep}[name] for name in ("base", "mine")]

    assert kept(None) == [False, False]
    assert kept(None) == [True, False]
    assert kept("1") == [True, False]
    assert kept("1") == [True, True]
    assert kept("2") == [True, False]


@cloudpickle
def test_a_fleet_compares_own_policies(tmp_path: Path) -> None:
    group = vellum.Group("hot", 40, ("zipf", {"theta": 1.1}), 1.5, drive="oftl", ages=(0, 4))
    options: dict[str, Any] = {"capacity": "128M", "op": 28, "precondition": "fill", "repeats": 2}
    fleet = vellum.fleet([group], ["base", OWN], **options)
    of = fleet.replacements
    assert list(of["policy"]) == ["base", "greedy by hand"]
    # The same choices wear the flash equally.
    assert of["a_year"][0] == of["a_year"][1] > 0 and of["fewer"][1] == 0
    assert "years greedy by hand" in fleet.drives


@cloudpickle
def test_functions_that_cannot_be_copied_are_named() -> None:
    import threading

    lock = threading.Lock()

    def locked(blocks: vellum.Closed) -> Any:
        with lock:
            return blocks.valid.argmin()

    with pytest.raises(vellum.OptionError, match="policy mine: its functions cannot be copied for a run of a sweep: .*lock"):
        vellum.sweep("zipf", "oftl", vellum.Policy("mine", victim=locked), **SHORT)


@cloudpickle
def test_a_worker_without_the_functions_module_says_so() -> None:
    from dataclasses import replace

    made = task("zipf", "oftl", OWN, SHORT)  # type: ignore[arg-type]
    answer = do(replace(made, functions=b"cnowhere\nfunction\n."))
    assert answer.result is None
    assert "policy greedy by hand: this worker cannot load its functions: ModuleNotFoundError" in answer.why


def test_a_sweep_needs_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(vellum.OptionError, match="policy greedy by hand: a sweep copies its functions .*pip install cloudpickle"):
        vellum.sweep("zipf", "oftl", OWN, **SHORT)
