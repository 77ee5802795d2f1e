#!/usr/bin/env python3
"""Draws docs/benchmarks/applications.svg from the figures that `make bench-applications` has left, and says what they mean in years:

    benches/applications_picture.py [CSV [SVG]]

Bytes that fresh file systems sent to the medium, of what ext4 sent: a bar each. The picture brings its own background, light or dark, and is
narrow enough for a telephone.
"""

import os
import sys
from html import escape

from applications_figures import Figures, mean

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "benchmarks")
WHERE = {"state": "fresh", "limit": "none"}
SYSTEMS = {"ordered": "ext4", "xfs": "XFS", "btrfs": "btrfs, zstd", "vellum": "Vellum, no option"}
# Short enough for a column of 100 units.
NAMES = {
    "mean": "on average",
    "etcd": "etcd",
    "redis": "Redis",
    "mariadb": "MariaDB",
    "postgresql": "PostgreSQL",
    "sqlite-wal": "SQLite, WAL",
    "sqlite": "SQLite, rollback",
    "rocksdb": "RocksDB",
    "influxdb": "InfluxDB",
    "packages": "apt, dpkg",
    "containers": "container images",
    "machine": "image of a VM",
    "git": "git",
    "compile": "compile",
    "logs": "logs",
    "mail": "mail",
}
WIDTH, LEFT, UNIT, MOST = 400, 122, 192, 1.25
BAR, GAP, TOP = 6, 9, 66
STYLE = """
    rect.back { fill: #ffffff } text { fill: #1f2328; font: 12px sans-serif } text.small { fill: #59636e; font-size: 10px }
    text.strong { font-weight: bold } .ordered { fill: #a8b1bb } .xfs { fill: #4f8fd6 } .btrfs { fill: #d99a3d } .vellum { fill: #1f9d62 }
    path { stroke: #d1d9e0; fill: none } text.ours { fill: #157347; font-weight: bold; font-size: 11px }
    @media (prefers-color-scheme: dark) {
        rect.back { fill: #151b23 } text { fill: #f0f6fc } text.small { fill: #9198a1 } .ordered { fill: #6e7781 } path { stroke: #3d444d }
        .xfs { fill: #58a0ec } .btrfs { fill: #e0a955 } .vellum { fill: #2fbf7a } text.ours { fill: #4fd69a }
    }
"""

# A card with a known life: the bytes that all its blocks together can be written, and the bytes written a day.
CARD, CARD_TERABYTES, DAILY_GIGABYTES = "32 GB", 16, 10


def ratios(figures, application):
    return {name: figures.ratio("medium_bytes", name, "ordered", application=application, **WHERE) for name in SYSTEMS}


def measured(figures):
    """The applications in the order of the names, each with its ratios; their means first."""
    there = set(figures.told("application", configuration="vellum", **WHERE))
    each = {name: ratios(figures, name) for name in NAMES if name in there}
    means = {system: mean(parts[system] for parts in each.values()) for system in SYSTEMS}
    return {"mean": means, **each}


def bars(name, parts, y, mib):
    strong = ' class="strong"' if name == "mean" else ""
    yield f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end"{strong}>{escape(NAMES[name])}</text>'
    if mib is not None:
        yield f'<text class="small" x="{LEFT - 8}" y="{y + 24}" text-anchor="end">ext4: {mib:.0f} MiB</text>'
    for row, system in enumerate(SYSTEMS):
        ratio = parts[system]
        if ratio is None:
            continue
        at, width = y + row * BAR, min(ratio, MOST) * UNIT
        yield f'<rect class="{system}" x="{LEFT}" y="{at}" width="{width:.1f}" height="{BAR - 1}" rx="1"/>'
        if system == "vellum":
            yield f'<text class="ours" x="{LEFT + width + 4:.1f}" y="{at + 9}">{ratio:.2f}</text>'
        elif ratio > MOST:
            yield f'<text class="small" x="{LEFT + width + 4:.1f}" y="{at + 6}">{ratio:.1f}</text>'


def drawn(figures):
    each = measured(figures)
    step = len(SYSTEMS) * BAR + GAP
    height = TOP + step * len(each) + 8
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{640 * height // WIDTH}" viewBox="0 0 {WIDTH} {height}" role="img">'
    yield "<title>Bytes written to the medium by application, of what ext4 writes</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>'
    yield '<text class="strong" x="12" y="20">Bytes written to the medium</text>'
    yield f'<text class="small" x="{WIDTH - 12}" y="20" text-anchor="end">1 = what ext4 writes</text>'
    for at, (system, title) in zip((12, 70, 128, 216), SYSTEMS.items()):
        yield f'<rect class="{system}" x="{at}" y="32" width="10" height="10" rx="2"/><text x="{at + 15}" y="41">{escape(title)}</text>'
    for tick in (0, 0.5, 1):
        x = LEFT + tick * UNIT
        yield f'<path d="M{x} {TOP - 6}V{height - 10}"/><text class="small" x="{x}" y="{TOP - 9}" text-anchor="middle">{tick}</text>'
    for row, (name, parts) in enumerate(each.items()):
        bytes_of_ext4 = figures.median("medium_bytes", application=name, configuration="ordered", **WHERE)
        yield from bars(name, parts, TOP + row * step, None if bytes_of_ext4 is None else bytes_of_ext4 / (1 << 20))
    yield "</svg>"


def years(figures):
    ratio = measured(figures)["mean"]["vellum"]
    plain = CARD_TERABYTES * 1000 / DAILY_GIGABYTES / 365
    return (
        f"A {CARD} card that takes {CARD_TERABYTES} TB before it wears out, on which ext4 writes {DAILY_GIGABYTES} GB a day, lasts "
        f"{plain:.1f} years with ext4, and {plain / ratio:.0f} behind Vellum, at {ratio:.2f} of the bytes."
    )


def main(source=os.path.join(HERE, "applications.csv"), target=os.path.join(HERE, "applications.svg")):
    figures = Figures(source)
    if not figures.told("round", configuration="vellum", **WHERE):
        raise SystemExit(f"{source} has no row of a volume: make bench-applications")
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(drawn(figures)) + "\n")
    print(years(figures))


main(*sys.argv[1:])
