#!/usr/bin/env python3
"""Why a file system flushes: nbdkit's log on stdin, the journal's block numbers in a file as the argument.

Prints, as lines of a name and a number, how many flushes came after writes of nothing, of the journal alone,
of home locations alone, and of both.
"""

import re
import sys

BLOCK = 4096


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        journal = {int(block) for block in file.read().split()}
    write = re.compile(r" Write id=\S+ offset=(0x[0-9a-f]+) count=(0x[0-9a-f]+)")
    classes = {(False, False): "nothing", (True, False): "journal", (False, True): "home", (True, True): "both"}
    counts = dict.fromkeys(classes.values(), 0)
    inside = outside = False
    for line in sys.stdin:
        # Requests are logged when they begin and when they end; " Flush id=" is the beginning.
        if " Flush id=" in line:
            counts[classes[inside, outside]] += 1
            inside = outside = False
        elif found := write.search(line):
            first, size = (int(text, 16) for text in found.groups())
            for block in range(first // BLOCK, (first + size + BLOCK - 1) // BLOCK):
                if block in journal:
                    inside = True
                else:
                    outside = True
    for name, count in counts.items():
        print(f"after_{name}\t{count}")


main()
