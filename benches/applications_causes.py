#!/usr/bin/env python3
"""What a volume wrote under each application, by what it was for: applications_causes.py FILE prints a table in MiB.

A line of the file is a run: its application, its configuration, the bytes that reached the medium, and what `vellum stats --json` said of the
volume when it was unmounted, or nothing; separated by tabs. What the server's end writes is the difference.
"""

import json
import math
import sys

MIB = 1 << 20
BLOCK = 4096
KINDS = ("data", "metadata", "copies", "journal")


def causes(core, total):
    """Bytes by cause, in the order of the table; the last three are no bytes of their own."""
    whole = sum(core[f"whole_{name}"] for name in KINDS) * BLOCK
    parts = sum(core[f"part_bytes_{name}"] for name in KINDS)
    known = sum(core[f"medium_{name}"] for name in ("data", "headers", "moved", "summaries", "map")) * BLOCK
    durable = core["durable_chunks"] * BLOCK
    return {
        "headers": core["medium_headers"] * BLOCK,
        "pages of parts": core["medium_data"] * BLOCK - whole,
        "whole blocks": whole,
        "summaries, map, moved": known - (core["medium_data"] + core["medium_headers"]) * BLOCK,
        "the stop": total - known,
        "contents": parts + whole,
        "a block a flush": durable,
        "least": max(durable, parts + whole),
    }


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def main(path):
    plain, volumes = {}, []
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, configuration, total, stats = line.rstrip("\n").split("\t")
            if stats:
                volumes.append((name, configuration, int(total), causes(json.loads(stats)[0]["stats"]["core"], int(total))))
            elif configuration == "ordered":
                plain[name] = int(total)
    if not volumes:
        return
    names = list(volumes[0][3])
    print("| MiB | ext4 | Vellum | " + " | ".join(names) + " | Vellum to ext4 | least to ext4 |")
    print("| --- |" + " ---: |" * (len(names) + 4))
    ratios, least = [], []
    for name, configuration, total, told in volumes:
        title = " ".join([name, *configuration.split(" ")[1:]])
        there = plain.get(name)
        cells = [f"{there / MIB:.1f}" if there else "-", f"{total / MIB:.1f}"] + [f"{value / MIB:.1f}" for value in told.values()]
        if there:
            ratios.append(total / there)
            least.append(told["least"] / there)
            cells += [f"{ratios[-1]:.2f}", f"{least[-1]:.2f}"]
        print(f"| {title} | " + " | ".join(cells) + " |")
    print("| *geometric mean* |" + " |" * (len(names) + 2) + f" {mean(ratios):.2f} | {mean(least):.2f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
