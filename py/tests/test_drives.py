"""Drives of one's own: values read, changed and checked."""

from typing import Any

import numpy as np
import pytest
import vellum
from conftest import SMALL

CACHE = {"erase_blocks": 8, "bits_per_cell": 3, "read_us": 25, "program_us": 200, "erase_ms": 3}
TLC = vellum.drives()["tlc-nvme"]


def test_a_drive_has_its_values_as_fields() -> None:
    fields = TLC.fields
    assert fields["about"] == TLC.about
    assert fields["link"]["command_us"] == 8 and fields["flash"]["program_us"] == 700
    assert fields["flash"]["planes_together"] is True
    # What it could have, and has not.
    assert fields["flash"]["page_types"] is None and fields["slc_cache"] is None
    assert vellum.drives()["fast-ssd"].fields["block"]["reads"] == {"latency_us": 80, "mb_per_s": 900}


@pytest.mark.parametrize("name", vellum.drives())
def test_all_values_can_be_given_again(name: str) -> None:
    known = vellum.drives()[name]
    again = known.with_(name=name, **known.fields)
    assert again == known


def test_with_changes_values_and_nothing_else() -> None:
    slow = TLC.with_(program_us=900.5, over_provisioning_percent=np.int64(12), planes_together=False)
    assert slow.name == "tlc-nvme, program_us=900.5, over_provisioning_percent=12, planes_together=False"
    before, after = TLC.fields, slow.fields
    # Its source knows nothing of these.
    assert slow.source == TLC.source + "; changed: program_us=900.5, over_provisioning_percent=12, planes_together=False"
    assert TLC.with_(program_us=700, about="the same").source == TLC.source
    assert TLC.with_(program_us=900, source="measured").source == "measured"
    often = TLC
    for number in range(80):
        often = often.with_(program_us=900 + number)
    assert often.source.endswith("; changed: program_us=979") and len(often.source) <= 1000
    assert after.pop("source") != before.pop("source")
    assert after["flash"].pop("program_us") == 900.5 and after["flash"].pop("over_provisioning_percent") == 12
    assert after["flash"].pop("planes_together") is False
    for name in ("program_us", "over_provisioning_percent", "planes_together"):
        del before["flash"][name]
    assert after == before
    # The file is the form in which a drive is passed on.
    assert vellum.drive(slow.toml, name=slow.name) == slow
    assert TLC.with_(name="mine", about='it is "mine"', flash={"read_us": 60}).about == 'it is "mine"'


def test_tables_come_and_go() -> None:
    cached = TLC.with_(name="cached", slc_cache=CACHE)
    assert cached.fields["slc_cache"] == {**CACHE, "idle_ms": None}
    # Its other values stay.
    assert cached.with_(slc_cache={"idle_ms": 5}).fields["slc_cache"] == {**CACHE, "idle_ms": 5}
    assert cached.with_(name=TLC.name, source=TLC.source, slc_cache=None) == TLC
    types = [{"read_us": 40, "program_us": 400}, {"read_us": 60, "program_us": 1000}]
    typed = TLC.with_(page_types=types)
    assert typed.fields["flash"]["page_types"] == types
    assert typed.with_(name=TLC.name, source=TLC.source, page_types=None) == TLC
    assert vellum.drives()["fast-ssd"].with_(reads={"latency_us": 20, "mb_per_s": 500}).fields["block"]["writes"]


def test_a_changed_drive_is_run() -> None:
    known = vellum.drives()["oftl"]
    options = {**SMALL, "policy": "base", "requests": 3000}
    before = vellum.run("zipf", **options)
    slow = known.with_(program_us=10 * known.fields["flash"]["program_us"])
    outcome = vellum.run("zipf", **{**options, "drive": slow})
    assert outcome["virtual_seconds"] > 3 * before["virtual_seconds"]
    assert outcome.about[0].startswith(slow.name)
    # A drive whose file was written by hand.
    short = vellum.Drive("mine", "", "", "\n".join(line for line in known.toml.splitlines() if not line.startswith("#")))
    assert short.fields == known.fields and short.with_(name="oftl", flash={"planes": 1}) == known.with_(name="oftl", planes=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "drive tlc-nvme: give with_ a field to change"),
        ({"programm_us": 3}, "drive tlc-nvme: there is no field programm_us: did you mean program_us"),
        ({"over_provisioning": 3}, "there is no field over_provisioning: did you mean over_provisioning_percent"),
        ({"zzz": 3}, "there is no field zzz: there are link, .*program_us"),
        ({"program_us": -3}, r"^drive tlc-nvme: flash: program_us: it is a number from 0.001 to 1000000, in steps of 0.001, not -3$"),
        ({"program_us": float("nan")}, "flash: program_us: it is a number from .*, not nan"),
        ({"program_us": "fast"}, "flash: program_us: it is a number .*, not 'fast'"),
        ({"program_us": 1 + 2j}, "program_us: it is a number, True or False, a text, or a list"),
        ({"program_us": None}, "flash: program_us: it is missing: From the register"),
        ({"planes_together": 1}, "flash: planes_together: it is true or false, not 1"),
        ({"flash": {"colour": 3}}, "flash: colour: there is no such key; there are .*, not 3"),
        ({"flash": 3}, "flash: it is a table, a dictionary of its values, or None, not 3"),
        ({"flash": {}}, "flash: it is a table"),
        ({"flash": None}, "flash: it is missing"),
        ({"slc_cache": {"read_us": 3}}, "slc_cache: erase_blocks: it is missing"),
        ({"page_types": [{"read_us": 3}]}, "page_types: it is a list of 2 to"),
        ({"about": "two\nlines"}, "drive tlc-nvme: about: it is what the drive is, in at most 1000 characters of one line"),
        ({"name": 3, "planes": 2}, "a name is a text, not 3"),
    ],
)
def test_errors_name_the_field(given: dict[str, Any], said: str) -> None:
    with pytest.raises(vellum.OptionError, match=said):
        TLC.with_(**given)


def test_a_field_of_two_tables_needs_its_table() -> None:
    cached = TLC.with_(name="cached", slc_cache=CACHE)
    with pytest.raises(vellum.OptionError, match='program_us is in several tables: write flash={"program_us": 3} or slc_cache='):
        cached.with_(program_us=3)
    assert cached.with_(flash={"program_us": 900}).fields["slc_cache"] == cached.fields["slc_cache"]
