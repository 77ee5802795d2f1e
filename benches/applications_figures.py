#!/usr/bin/env python3
"""Figures of the applications' benchmark, a row a run:

    applications_figures.py merge CSV ROWS     puts new rows (separated by tabs) in the place of those of the same
    applications_figures.py table CSV TITLES   prints the document
"""

import csv
import math
import os
import statistics
import sys

FIELDS = "state limit application configuration round medium_bytes host_bytes syncs operations seconds server_seconds commit date".split()
# Identifies rows of the same measurement: everything but the round and the results.
KEY = FIELDS[:4]


class Figures:
    """All rows, and what is told of them: medians over rounds, means over applications."""

    def __init__(self, path):
        self.rows = []
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as file:
                self.rows = list(csv.DictReader(file))

    def merge(self, rows):
        new = {tuple(row[name] for name in KEY) for row in rows}
        self.rows = [row for row in self.rows if tuple(row[name] for name in KEY) not in new] + rows
        self.rows.sort(key=lambda row: [row[name] for name in FIELDS[:5]])

    def write(self, path):
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)

    def told(self, key, **what):
        """The values of a column, in the rows that are so."""
        return [row[key] for row in self.rows if all(row[name] == value for name, value in what.items())]

    def median(self, key, **what):
        values = [float(value) for value in self.told(key, **what)]
        return statistics.median(values) if values else None

    def ratio(self, key, one, other, **what):
        ours, theirs = (self.median(key, configuration=name, **what) for name in (one, other))
        return ours / theirs if ours is not None and theirs else None


def mean(ratios):
    """The geometric mean of what there is."""
    there = [ratio for ratio in ratios if ratio]
    return math.exp(sum(map(math.log, there)) / len(there)) if there else None


def shown(value, form):
    return "-" if value is None else format(value, form)


class Section:
    """The tables of one state and one limit."""

    NAMES = {"ordered": "ext4", "xfs": "XFS", "btrfs": "btrfs, zstd", "vellum": "Vellum"}

    def __init__(self, figures, titles, state, limit):
        self.figures, self.where = figures, {"state": state, "limit": limit}
        there = set(figures.told("application", **self.where))
        self.titles = {name: title for name, title in titles.items() if name in there}
        measured = set(figures.told("configuration", **self.where))
        self.plain = [name for name in ("ordered", "xfs", "btrfs") if name in measured]
        self.properties = sorted(name for name in measured if name.startswith("vellum "))
        self.others = [name for name in self.plain + self.properties if name != "ordered"]

    def name(self, configuration):
        return self.NAMES.get(configuration) or f"with {configuration.split(' ', 1)[1]}"

    def row(self, application, key, form, scale):
        where = {**self.where, "application": application}
        cells = [shown(scaled(self.figures.median(key, configuration=name, **where), scale), form) for name in [*self.plain, "vellum"]]
        cells += [shown(self.figures.ratio(key, "vellum", name, **where), ".2f") for name in self.plain]
        return cells

    def means(self, key, one, other):
        return mean(self.figures.ratio(key, one, other, application=name, **self.where) for name in self.titles)

    def table(self, key, form, scale=1):
        """Of each application: what each took, and Vellum's part of it."""
        names = [self.name(name) for name in [*self.plain, "vellum"]] + [f"Vellum to {self.name(name)}" for name in self.plain]
        yield "| | " + " | ".join(names) + " |"
        yield "| --- |" + " ---: |" * len(names)
        for application, title in self.titles.items():
            yield "| " + " | ".join([title, *self.row(application, key, form, scale)]) + " |"
        last = ["**geometric mean, of ext4**"] + [shown(self.means(key, name, "ordered"), ".2f") for name in [*self.plain, "vellum"]]
        last += [shown(self.means(key, "vellum", name), ".2f") for name in self.plain]
        yield "| " + " | ".join(last) + " |"

    def lost(self, key, most):
        """Where it is more than so much of ext4's."""
        for name, title in self.titles.items():
            ratio = self.figures.ratio(key, "vellum", "ordered", application=name, **self.where)
            if ratio and ratio > most:
                yield f"{title} ({ratio:.2f})"

    def asked(self):
        def verdict(what, value, most):
            return None if value is None else f"- {what}: at most {most:.2f} asked, {value:.2f}: {'yes' if value <= most else '**no**'}"

        yield verdict("bytes, of ext4's", self.means("medium_bytes", "vellum", "ordered"), 0.25)
        yield verdict("bytes, of XFS's", self.means("medium_bytes", "vellum", "xfs"), 0.50)
        over = list(self.lost("medium_bytes", 1.0))
        yield "- bytes: no application above ext4's asked: " + (f"**no**: {'; '.join(over)}" if over else "yes")
        slow = self.where["limit"] != "none"
        yield verdict("time, of ext4's", self.means("seconds", "vellum", "ordered"), 1.0 if slow else 1.1)
        if not slow:
            over = list(self.lost("seconds", 1.5))
            yield "- time: no application above 1.50 of ext4's asked: " + (f"**no**: {'; '.join(over)}" if over else "yes")

    def processor(self, configuration):
        """Seconds of the server for each GiB that the file system was to write, over all applications."""
        where = {**self.where, "configuration": configuration}
        sums = [sum(self.figures.median(key, application=name, **where) or 0 for name in self.titles) for key in ("server_seconds", "host_bytes")]
        return sums[0] / sums[1] * (1 << 30) if sums[1] else None

    def lines(self):
        if not self.figures.told("round", configuration="vellum", **self.where):
            return
        limit = self.where["limit"]
        yield f"\n## {self.where['state'].capitalize()}{'' if limit == 'none' else f', on a disk of {limit} bytes a second'}\n"
        yield self.measured()
        yield from filter(None, self.asked())
        yield "\n### MiB to the medium\n"
        yield from self.table("medium_bytes", ".1f", 1 << 20)
        yield "\n### Seconds\n"
        yield from self.table("seconds", ".2f")
        yield f"\nThe server takes {shown(self.processor('vellum'), '.1f')} seconds of a processor for each GiB that the file system sends it."
        if self.properties:
            yield "\n### With properties given\n"
            yield "Geometric means, of ext4's; and the server's seconds of a processor for each GiB.\n"
            yield "| | bytes | time | processor |"
            yield "| --- | ---: | ---: | ---: |"
            for name in ["vellum", *self.properties]:
                cells = [self.means(key, name, "ordered") for key in ("medium_bytes", "seconds")] + [self.processor(name)]
                yield f"| {'no option' if name == 'vellum' else self.name(name)} | " + " | ".join(shown(cell, ".2f") for cell in cells) + " |"

    def measured(self):
        runs = sorted({(row["date"], row["commit"]) for row in self.figures.rows if all(row[name] == value for name, value in self.where.items())})
        rounds = len(set(self.figures.told("round", configuration="vellum", **self.where)))
        when = ", ".join(f"{date} at {commit}" for date, commit in runs)
        return f"Measured on {when}; {'one round' if rounds == 1 else f'medians of {rounds} rounds'}.\n"


def scaled(value, scale):
    return None if value is None else value / scale


def document(figures, titles):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "applications_head.txt")
    with open(path, encoding="utf-8") as file:
        yield file.read().rstrip("\n")
    limits = ["none", *sorted({limit for limit in figures.told("limit")} - {"none"})]
    for limit in limits:
        for state in ("fresh", "aged"):
            yield from Section(figures, titles, state, limit).lines()


def main(verb, path, more):
    figures = Figures(path)
    with open(more, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if verb == "merge":
        figures.merge([dict(zip(FIELDS, line.split("\t"), strict=True)) for line in lines])
        figures.write(path)
    else:
        print("\n".join(document(figures, dict(line.split("|")[:2] for line in lines))))


if __name__ == "__main__":
    main(*sys.argv[1:])
