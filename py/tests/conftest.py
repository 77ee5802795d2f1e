"""What several tests need."""

from pathlib import Path

import pytest

SMALL = {"drive": "oftl", "capacity": "256M", "op": 28, "precondition": "fill", "seed": 3}
"""A run of a moment."""


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """A trace as MSR has them: 300 writes of 4 KiB to 100 places, and a read after each third."""
    lines = []
    for number in range(300):
        # Times are in units of 100 ns.
        at, place = 128166372003061629 + number * 10_000, number * 37 % 100 * 4096
        lines.append(f"{at},host,0,Write,{place},4096,500")
        if number % 3 == 0:
            lines.append(f"{at},host,0,Read,{place},4096,500")
    path = tmp_path / "requests.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
