#!/usr/bin/env python3
"""Makes a file system old: fills it with files of all sizes, then writes as much over them, in place and by new ones, a few times:
age.py DIR PERCENT TIMES.

Half of it is text, half does not compress, as photographs and packages do not.
"""

import os
import random
import sys

from common import SEED, Text

PART = 64 << 10
SIZES = ((4 << 10, 60), (32 << 10, 25), (512 << 10, 10), (4 << 20, 5))


def used(root):
    """Of what its user may have."""
    about = os.statvfs(root)
    return 1 - about.f_bavail / (about.f_blocks - about.f_bfree + about.f_bavail)


class Files:
    """The files, and what is written into them."""

    def __init__(self, root):
        self.root, self.numbers, self.text = root, random.Random(SEED), Text(SEED)
        self.sizes, self.made = {}, 0

    def content(self, packed, size):
        return self.numbers.randbytes(size) if packed else self.text.take(size)

    def size(self):
        mean = self.numbers.choices([size for size, _ in SIZES], [share for _, share in SIZES])[0]
        return max(1, int(mean * self.numbers.uniform(0.3, 1.7)))

    def add(self, size):
        name = self.made
        self.made += 1
        path = f"{self.root}/{name % 100}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(self.content(name % 2, size))
        self.sizes[name] = size
        return size

    def remove(self, name):
        os.unlink(f"{self.root}/{name % 100}/{name}")
        return self.sizes.pop(name)

    def overwrite(self, name):
        """Parts of it, in place."""
        size = self.sizes[name]
        with open(f"{self.root}/{name % 100}/{name}", "r+b") as file:
            for at in range(0, size, PART):
                file.seek(at)
                file.write(self.content(name % 2, min(PART, size - at)))
        return size


def fill(files, full):
    since = 0
    while True:
        since += files.add(files.size())
        # Delayed allocations are not counted.
        if since > 16 << 20:
            os.sync()
            since = 0
            if used(files.root) >= full:
                return


def main(root, percent, times):
    files, full = Files(root), int(percent) / 100
    fill(files, full)
    left = int(times) * sum(files.sizes.values())
    while left > 0:
        name = files.numbers.choice(list(files.sizes))
        if files.numbers.random() < 0.5:
            left -= files.overwrite(name)
            continue
        left -= files.add(files.remove(name))
    os.sync()
    while used(root) > full:
        files.remove(files.numbers.choice(list(files.sizes)))
        os.sync()


main(*sys.argv[1:])
