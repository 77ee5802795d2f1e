#!/usr/bin/env python3
"""Everything at once, chosen by a seed, with content that is meant to mislead: churn.py DIR SCALE SEED [COPY].

Files are made, overwritten in place, appended to, cut, renamed over each other and removed, some with fsync,
some with direct I/O. With COPY the same is done there: afterwards the two trees must be equal. A second call
goes on with what an earlier one left.
"""

import mmap
import os
import random

from common import BLOCK, main, text_pool

STEPS = 3000
FILES = 120
# The jbd2 magic: in a block that begins with it, the journal stores four zero bytes instead.
MAGIC = bytes.fromhex("c03b3998")
ESCAPED = bytes(4)


class Content:
    """Blocks that look like one another: to a hash of their head, or to the journal's escaping."""

    def __init__(self, numbers):
        self.numbers = numbers
        fixed = random.Random(5)
        self.bodies = [fixed.randbytes(BLOCK - 4) for _ in range(4)]
        self.heads = [fixed.randbytes(64) for _ in range(2)]
        self.earlier = [bytes(BLOCK)]

    def block(self):
        numbers = self.numbers
        kind = numbers.randrange(9)
        if kind == 0:
            block = MAGIC + numbers.randbytes(BLOCK - 4)
        elif kind == 1:
            block = MAGIC + numbers.choice(self.bodies)
        elif kind == 2:
            block = ESCAPED + numbers.choice(self.bodies)
        elif kind == 3:
            block = numbers.choice(self.heads) + numbers.randbytes(BLOCK - 64)
        elif kind == 4:
            block = numbers.choice(self.earlier)
        elif kind == 5:
            at = numbers.randrange(len(text_pool()) - BLOCK)
            block = text_pool()[at : at + BLOCK]
        elif kind == 6:
            block = bytes(BLOCK)
        else:
            block = numbers.randbytes(BLOCK)
        if len(self.earlier) < 64:
            self.earlier.append(block)
        else:
            self.earlier[numbers.randrange(64)] = block
        return block

    def blocks(self, count):
        return b"".join(self.block() for _ in range(count))


def written(path, offset, content, direct=False, durable=False):
    """A write in place, or past the end."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_DIRECT if direct else 0)
    file = os.open(path, flags, 0o644)
    if direct:
        with mmap.mmap(-1, len(content)) as aligned:
            aligned.write(content)
            os.pwrite(file, memoryview(aligned), offset)
    else:
        os.pwrite(file, content, offset)
    if durable:
        os.fsync(file)
    os.close(file)


class Trees:
    """The tree, and its copy elsewhere."""

    def __init__(self, root, copy):
        self.root, self.copy = root, copy

    def both(self):
        return [self.root] + ([self.copy] if self.copy else [])

    def write(self, name, offset, content, direct, durable):
        written(f"{self.root}/{name}", offset, content, direct, durable)
        if self.copy:
            written(f"{self.copy}/{name}", offset, content)

    def each(self, work):
        for root in self.both():
            work(root)


def run(job):
    seed = int(job.parameters[0])
    copy = job.parameters[1] if len(job.parameters) > 1 else None
    numbers = random.Random(seed)
    content, trees = Content(numbers), Trees(job.dir, copy)
    names = [f"d{n % 7}/f{n}" for n in range(FILES)]
    trees.each(lambda root: [os.makedirs(f"{root}/d{n}", exist_ok=True) for n in range(7)])
    # Files of an earlier call, read from the tree, so that a call after a crash continues with what is there.
    sizes = {name: os.stat(f"{job.dir}/{name}").st_size for name in names if os.path.exists(f"{job.dir}/{name}")}
    steps = job.scaled(STEPS, least=50)
    for _ in range(steps):
        name = numbers.choice(names)
        durable = numbers.random() < 0.3
        kind = numbers.randrange(20)
        size = sizes.get(name)
        if size is None or kind == 0:
            data = content.blocks(numbers.randrange(1, 24))
            trees.each(lambda root, name=name: written(f"{root}/{name}", 0, b""))
            trees.write(name, 0, data, False, durable)
            sizes[name] = max(size or 0, len(data))
        elif kind <= 11 and size >= BLOCK:
            count = numbers.randrange(1, 5)
            at = numbers.randrange(size // BLOCK) * BLOCK
            data = content.blocks(count)
            trees.write(name, at, data, kind >= 9, durable)
            sizes[name] = max(size, at + len(data))
        elif kind <= 14:
            data = content.block()[: numbers.randrange(1, BLOCK)]
            trees.write(name, size, data, False, durable)
            sizes[name] = size + len(data)
        elif kind <= 16:
            other = numbers.choice(names)
            if other != name:
                trees.each(lambda root, a=name, b=other: os.replace(f"{root}/{a}", f"{root}/{b}"))
                sizes[other] = sizes.pop(name)
        elif kind == 17:
            cut = numbers.randrange(size + 1)
            trees.each(lambda root, name=name, cut=cut: os.truncate(f"{root}/{name}", cut))
            sizes[name] = cut
        else:
            trees.each(lambda root, name=name: os.unlink(f"{root}/{name}"))
            del sizes[name]
    return steps


main(run)
