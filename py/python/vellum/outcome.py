"""Results of runs."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

from . import _lab
from .table import NAMES, Table, of_csv, value

Figure = int | float | bool | str | None


class Outcome(dict[str, Figure]):
    """A run's figures, by the names that `vellum lab run --csv` gives them; `None` for what this run does not have.

    Several of them are a data frame: `pandas.DataFrame([outcome, ...])`.
    """

    _steps: str
    """`steps` as text. A sweep of short runs would spend more time on numbers that nobody looks at than on all else."""

    details: dict[str, Any]
    """All that is known of it, by the names of `vellum lab run --json`."""

    about: list[str]
    """What has to be known of the drive and the load."""

    warnings: list[str]
    """What speaks against the figures."""

    table: str
    """The table that the command prints."""

    @functools.cached_property
    def steps(self) -> Table:
        """How it went: a row for each of some hundred steps, with every counter from the start to the step's end."""
        return of_csv(self._steps)

    @property
    def policy(self) -> str:
        """The policy."""
        return str(self["policy"])

    @property
    def write_amplification(self) -> float | None:
        """Blocks written to the medium for each that the host wrote; `None` where it wrote nothing."""
        figure: float | None = self.details["write_amplification"]
        return figure

    @property
    def years(self) -> float | None:
        """Years until the flash is worn out; `None` if there were too few erasures to tell."""
        life = self.details["life"]
        return None if life is None else life["years"]

    @functools.cached_property
    def write_latencies(self) -> Table:
        """The distribution of the writes' latencies: `ns`, and the `share` of the writes that took at most so long."""
        return _distribution(self.details["write_cdf"])

    @functools.cached_property
    def read_latencies(self) -> Table:
        """The distribution of the reads' latencies, likewise."""
        return _distribution(self.details["read_cdf"])

    def __repr__(self) -> str:
        amplification = self.write_amplification
        told = "-" if amplification is None else f"{amplification:.3f}"
        return f"<vellum.Outcome: {self.policy}, write amplification {told}>"

    def __str__(self) -> str:
        return self.table


class Comparison(list[Outcome]):
    """Runs of one load on one drive, by policy. `pandas.DataFrame(comparison)` is a row for each."""

    _figures: str
    _steps: str

    table: str
    """The table that the command prints."""

    about: list[str]
    """What has to be known of the drive and the load."""

    warnings: list[str]
    """What speaks against the figures."""

    failed: dict[str, str]
    """Policies that could not be run, and why."""

    @functools.cached_property
    def figures(self) -> Table:
        """The figures of all: a row for each run."""
        return of_csv(self._figures)

    @functools.cached_property
    def steps(self) -> Table:
        """How they went: the steps of all, one after the other."""
        return of_csv(self._steps)

    def __repr__(self) -> str:
        return f"<vellum.Comparison: {', '.join(outcome.policy for outcome in self)}>"

    def __str__(self) -> str:
        return self.table


def comparison(
    forms: _lab.Forms, about: list[str], warnings: list[str], failed: dict[str, str]
) -> Comparison:
    """Makes it of what the native part returns."""
    as_json, figures, steps, table, each = forms
    out = Comparison()
    out._figures, out._steps = figures, steps
    out.table, out.about, out.warnings, out.failed = table, about, warnings, failed
    for details, (own, own_steps, own_table) in zip(json.loads(as_json), each):
        read = of_csv(own).items()
        outcome = Outcome((name, column[0] if name in NAMES else _plain(column[0])) for name, column in read)
        outcome.details, outcome._steps = details, own_steps
        outcome.table, outcome.about, outcome.warnings = own_table, about, warnings
        out.append(outcome)
    return out


def _plain(figure: Any) -> Figure:
    """A figure as a plain Python value; `None` if it is missing."""
    if isinstance(figure, str):
        return value(figure)
    plain: Figure = figure.item() if isinstance(figure, np.generic) else figure
    return None if plain != plain else plain


def _distribution(points: list[dict[str, float]]) -> Table:
    return Table(
        ns=np.array([point["ns"] for point in points], dtype=np.int64),
        share=np.array([point["share"] for point in points], dtype=np.float64),
    )
