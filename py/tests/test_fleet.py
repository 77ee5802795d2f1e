"""Fleets: replacements of many drives."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vellum
import vellum.workers
from vellum.fleet import _again, _draw, _Draws, _sure

OPTIONS: dict[str, Any] = {"capacity": "128M", "op": 28, "precondition": "fill", "repeats": 3}
HOT = vellum.Group("hot", 300, ("zipf", {"theta": 1.1}), 1.5, drive="oftl", spread=0.4, ages=(0, 4))
EVEN = vellum.Group("even", 100, "uniform", 0.7, drive="oftl", spread=0.2, ages=(1, 6), options={"depth": 8})
POLICIES = ["base", "vellum"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


def text(fleet: vellum.Fleet) -> str:
    tables = (fleet.replacements, fleet.by_year, fleet.by_group, fleet.drives)
    return "".join(table.to_pandas().to_csv() for table in tables)


def by_hand(age: float, before: float, after: float, years: int) -> list[int]:
    """Replacements of one drive by year: drives live one after the other, so long under the first policy, then so long."""
    bought = 0.0
    while bought + before <= age:
        bought += before
    # It spends the rest of its life under the other policy.
    dies = (1 - (age - bought) / before) * after
    out = [0] * years
    while dies < years:
        out[int(dies)] += 1
        dies += after
    return out


def test_each_drive_is_replaced_when_it_is_worn_out() -> None:
    group = vellum.Group("few", 12, "zipf", 1.0, spread=0.6, ages=(0, 7))
    # Drive writes that a new one endures, by policy and repetition.
    endured = np.array([[1000.0, 1400.0], [600.0, 2500.0]])
    drawn = _draw(group, endured, 6, 5)
    assert len(set(drawn.ages)) == len(set(drawn.writes)) == 12
    for drive in range(12):
        for repeat in range(2):
            age, writes = drawn.ages[drive], drawn.writes[drive]
            for policy in range(2):
                before, after = (endured[of, repeat] / writes / 365.25 for of in (0, policy))
                assert drawn.replaced[drive, repeat, policy].tolist() == by_hand(age, before, after, 6)


def test_in_the_long_run_each_life_is_a_replacement() -> None:
    group = vellum.Group("many", 500, "zipf", 2.0, spread=0.3, ages=(0, 3))
    drawn = _draw(group, np.array([[700.0]]), 200, 1)
    a_year = drawn.replaced.sum() / 200
    assert a_year == pytest.approx((1 / drawn.lives).sum(), rel=0.01)
    assert np.median(drawn.writes) == pytest.approx(2.0, rel=0.05)
    assert np.log(drawn.writes).std() == pytest.approx(0.3, rel=0.1)
    assert drawn.ages.min() < 0.05 and drawn.ages.max() > 2.95


def test_a_policys_effect_has_an_interval(kept: Path) -> None:
    fleet = vellum.fleet([HOT, EVEN], POLICIES, cache=kept, **OPTIONS)
    of = fleet.replacements
    assert list(of["policy"]) == POLICIES and len(fleet.runs) == 12
    for figure, low, high in zip(of["a_year"], of["low"], of["high"]):
        assert 0 < low < figure < high < 2 * figure
    assert of["fewer"][0] == of["fewer_low"][0] == of["fewer_high"][0] == 0
    assert of["fewer"][1] == pytest.approx(of["a_year"][0] - of["a_year"][1])
    # Both policies have the same drives, so their difference is surer than two figures.
    assert of["fewer_high"][1] - of["fewer_low"][1] < (of["high"] - of["low"]).sum()
    frame = fleet.by_year.to_pandas()
    assert frame.groupby("policy")["replacements"].mean()["base"] == pytest.approx(of["a_year"][0])
    groups = fleet.by_group.to_pandas()
    assert groups.groupby("policy")["a_year"].sum()["vellum"] == pytest.approx(of["a_year"][1])
    assert fleet.drives.rows == 400 and (fleet.drives["worn"] < 1).all()
    # A drive lasts as long as the run says, at its rate of writes.
    ran = [ran.outcome for ran in fleet.runs if ran.point["group"] == "even" and ran.point["policy"] == "base"]
    volume = ran[0].details["logical_blocks"] * 4096
    lasts = np.mean([outcome.details["life"]["endurance_bytes"] for outcome in ran]) / volume / 365.25
    assert fleet.drives["years base"][399] * fleet.drives["writes_per_day"][399] == pytest.approx(lasts)
    assert fleet.warnings and "hot under base: a run had not settled" in fleet.warnings[0]
    # Repetitions are separate runs.
    assert len({outcome["erases"] for outcome in ran}) > 1
    assert "base" in repr(fleet) and "400 drives" in repr(fleet)


def test_only_the_seed_changes_the_figures(kept: Path, tmp_path: Path) -> None:
    first = vellum.fleet([HOT, EVEN], POLICIES, cache=kept, **OPTIONS)
    again = vellum.fleet([HOT, EVEN], POLICIES, cache=kept, threads=1, **OPTIONS)
    anew = vellum.fleet([HOT, EVEN], POLICIES, cache=tmp_path, threads=3, **OPTIONS)
    assert text(first) == text(again) == text(anew) and not any(ran.kept for ran in anew.runs)
    other = vellum.fleet([HOT, EVEN], POLICIES, seed=2, **OPTIONS)
    assert text(other) != text(first)
    low, high = first.replacements["low"], first.replacements["high"]
    assert (other.replacements["a_year"] > low * 0.9).all() and (other.replacements["a_year"] < high * 1.1).all()
    # Another group changes nothing about a group's drives, and nothing is run again for it.
    alone = vellum.fleet([HOT], POLICIES, cache=kept, **OPTIONS)
    assert all(ran.kept for ran in alone.runs)
    assert (alone.drives["age"] == first.drives["age"][:300]).all()
    assert alone.by_group["a_year"].tolist() == first.by_group["a_year"][:2].tolist()


def test_an_interval_holds_the_truth_19_times_in_20() -> None:
    # The fleet's own figure, drawn often, lies within one fleet's interval about 19 times in 20.
    endured = np.array([[700.0, 730.0, 690.0, 705.0]])
    held = 0
    def drawn_as(name: str) -> Any:
        return _draw(vellum.Group(name, 200, "zipf", 1.0, spread=0.5, ages=(0, 2)), endured, 4, 1)

    truth = np.mean([drawn_as(f"truth {number}").replaced.sum() / 16 for number in range(300)])
    for number in range(60):
        drawn = drawn_as(f"one {number}")
        _, low, high = _sure(0, _again(drawn, 4, number)[:, 0].mean(axis=1))
        held += low <= truth <= high
    assert 50 <= held <= 60


DRAWN = [0.6298306886547995, 0.7565251316732464]
"""Others would be other figures from the same seed."""


def test_draws_are_the_same_for_ever() -> None:
    draws = _Draws(1, "a test")
    assert draws.even(2).tolist() == DRAWN
    assert draws.among(3, 9).sum() == 9


def test_too_short_a_run_is_an_error() -> None:
    with pytest.raises(vellum.RunError, match="group=hot, policy=base, repeat=0: the run tells no life: .*too few"):
        vellum.fleet([HOT], ["base"], requests=2000, **OPTIONS)
    with pytest.raises(vellum.RunError, match="group=hot, policy=woj, repeat=0: .*block devices"):
        vellum.fleet([HOT], ["woj"], **OPTIONS)


def group(**given: Any) -> vellum.Group:
    return vellum.Group(**{"name": "a", "drives": 5, "load": "zipf", "writes_per_day": 1, "drive": "oftl", **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"groups": []}, "groups: the list is empty"),
        ({"groups": [7]}, "each is a vellum.Group, not 7"),
        ({"groups": [group(), group()]}, "groups: 'a' is there twice"),
        ({"groups": [group(name=3)]}, "group 3: a name is a text"),
        ({"groups": [group(drives=0)]}, "group a: drives is a whole number from 1 on, not 0"),
        ({"groups": [group(writes_per_day=0)]}, "group a: writes_per_day: a number from 1e-06 to 1000, not 0"),
        ({"groups": [group(writes_per_day=math.nan)]}, "group a: writes_per_day: a number"),
        ({"groups": [group(spread=-1)]}, "group a: spread: a number from 0 to 3, not -1"),
        ({"groups": [group(ages=5)]}, "group a: ages are a pair"),
        ({"groups": [group(ages=(3, 2))]}, "group a: ages: 3 is more than 2"),
        ({"groups": [group(drive="floppy")]}, "drive 'floppy': there are"),
        ({"groups": [group(load=9)]}, "a load is a name.* group=a"),
        ({"groups": [group(options={"seed": 4})]}, "group a: seed is the fleet's"),
        ({"groups": [group(options={"op": 4})]}, "group a: op: of the group and of all: give it once"),
        ({"groups": [group(options={"thta": 4})]}, "there is no option thta.*group=a"),
        ({"policies": []}, "policies: the list is empty"),
        ({"policies": ["magic"]}, "a policy begins with.*policy=magic"),
        ({"policies": ["base", "base"]}, "policies: 'base' is there twice"),
        ({"years": 0}, "years is a whole number from 1 on, not 0"),
        ({"repeats": 1}, "repeats is a whole number from 2 on, not 1"),
        ({"seed": "x"}, "seed is a whole number from 0 on, not 'x'"),
    ],
)
def test_errors_are_named_before_anything_is_run(
    given: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vellum.workers, "do", None)
    with pytest.raises(vellum.OptionError, match=said):
        vellum.fleet(**{"groups": [group()], "policies": ["base"], **OPTIONS, **given})
