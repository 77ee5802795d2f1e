#!/usr/bin/env python3
"""Makes an archive of a volume that has a feature, and the list of what must be read from it: see README.md.

    features.py PROGRAM NAME

PROGRAM is a `vellum`. NAME is a story below. NAME.vla and NAME.sums are written beside this file."""
import contextlib, copy, hashlib, pathlib, random, signal, struct, subprocess, sys, tempfile, time
from make import BLOCK, EXPORT, Client, text

MIB, TIB = 1 << 20, 1 << 40


class Sparse:
    """The bytes of a volume; only blocks that were written take memory."""

    def __init__(self, length):
        self.length, self.blocks = length, {}

    def __len__(self):
        return self.length

    def __setitem__(self, at, data):
        for offset in range(0, len(data), BLOCK):
            self.blocks[(at.start + offset) // BLOCK] = data[offset : offset + BLOCK]

    def __getitem__(self, at):
        return b"".join(self.blocks.get(n, bytes(BLOCK)) for n in range(at.start // BLOCK, at.stop // BLOCK))


class Story:
    """A volume, and the contents of it, of its snapshots and of its clones."""

    def __init__(self, program, folder, size, *create):
        self.program, self.volume, self.socket = program, folder / EXPORT, folder / "s"
        self.chance, self.contents = random.Random(1), {"": Sparse(size)}
        self.run("create", self.volume, f"--size={size}", *create)

    def run(self, *words):
        subprocess.run([self.program, *map(str, words)], check=True)

    @contextlib.contextmanager
    def served(self, name=""):
        shown = f"{EXPORT}={self.volume}{name and '@'}{name}"
        server = subprocess.Popen([self.program, "serve", shown, "--socket", str(self.socket)])
        while not self.socket.exists():
            assert server.poll() is None, "the server ended"
            time.sleep(0.01)
        yield (client := Client(self.socket, self.contents[name]))
        client.flush()
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0

    def text(self, client, first, count=1):
        client.write(first * BLOCK, text(self.chance, count * BLOCK))

    def fill(self, last):
        """Text, noise with a copy, a delta, zeros and a discard, at both ends."""
        with self.served() as client:
            self.text(client, 0, 8)
            noise = self.chance.randbytes(2 * BLOCK)
            for place in 100, last - 2:
                client.write(place * BLOCK, noise)
            client.flush()
            for _ in range(2):
                self.text(client, 2, 2)
                client.flush()
            client.write(4 * BLOCK, bytes(BLOCK))
            client.discard(6 * BLOCK, BLOCK)

    def snapshot(self, name):
        self.run("snapshot", self.volume, name)
        self.contents[name] = copy.deepcopy(self.contents[""])

    def clone(self, snapshot, name):
        self.run("clone", f"{self.volume}@{snapshot}", name)
        self.contents[name] = copy.deepcopy(self.contents[snapshot])

    def resize(self, command, size, *more):
        self.run(command, self.volume, f"--size={size}", *more)
        self.contents[""].length = size

    def change(self, first, count, name=""):
        with self.served(name) as client:
            self.text(client, first, count)

    def sums(self):
        """Of each: all runs of blocks that anything ever was in, each with a block before and behind it.
        All of them are as long as the volume is now."""
        ever = set().union(*(content.blocks for content in self.contents.values()))
        end = len(self.contents[""]) // BLOCK
        for name, content in self.contents.items():
            places = sorted({p for block in ever for p in (block - 1, block, block + 1) if 0 <= p < end})
            while places:
                run = 1 + next((n for n, (a, b) in enumerate(zip(places, places[1:])) if b > a + 1), len(places) - 1)
                first, places = places[0], places[run:]
                digest = hashlib.sha256(content[first * BLOCK : (first + run) * BLOCK]).hexdigest()
                yield f"{digest} {first * BLOCK} {run * BLOCK}{name and ' '}{name}\n"


def clones(make):
    story = make(16 * MIB)
    story.fill(4096)
    story.snapshot("kept")
    story.clone("kept", "copy")
    story.change(0, 2)
    with story.served("copy") as client:
        story.text(client, 1, 3)
        story.text(client, 3000)
        client.discard(100 * BLOCK, BLOCK)
    story.snapshot("later")
    story.change(101, 1)
    story.clone("later", "second")
    story.change(7, 1, "second")
    return story


def grown(make):
    story = make(16 * MIB)
    story.fill(4096)
    story.snapshot("kept")
    story.clone("kept", "copy")
    story.change(0, 2)
    story.change(1, 2, "copy")
    story.resize("grow", 24 * MIB)
    story.change(5000, 2)
    story.snapshot("later")
    story.change(1, 2)
    story.change(5001, 2)
    return story


def shrunk(make):
    story = make(16 * MIB)
    story.fill(2000)
    story.snapshot("kept")
    story.change(0, 2)
    story.resize("shrink", 8 * MIB)
    story.change(2040, 8)
    story.snapshot("later")
    story.change(1, 2)
    return story


def given_back(make):
    """What is stored at the medium's end has to move: there are the last of many writes. An archive needs few bytes for them."""
    story = make(16 * MIB, "--set=compress=off", "--set=delta=off")
    with story.served() as client:
        for round in range(1, 4):
            for block in range(200, 1900):
                client.write(block * BLOCK, struct.pack("<HH", round, block) * (BLOCK // 4))
            client.flush()
        client.discard(204 * BLOCK, 1690 * BLOCK)
    story.fill(2000)
    story.snapshot("kept")
    story.clone("kept", "copy")
    story.change(0, 2)
    story.change(1, 2, "copy")
    story.resize("shrink", 8 * MIB, f"--medium-size={20 * MIB}")
    story.change(1, 2)
    return story


def wide(make):
    last = 17 * TIB // BLOCK
    story = make(17 * TIB, f"--medium-size={1152 << 30}", "--set=dedup=on")
    story.fill(last)
    far = 16 * TIB // BLOCK
    story.change(far, 4)
    story.snapshot("kept")
    story.clone("kept", "copy")
    story.change(far + 1, 2)
    story.change(far + 2, 3, "copy")
    story.change(2, 1)
    return story


def main():
    program, name = sys.argv[1:]
    beside = pathlib.Path(__file__).parent
    with tempfile.TemporaryDirectory(prefix="vellum-golden-", dir="/var/tmp") as folder:
        make = lambda *args: Story(program, pathlib.Path(folder), *args)
        story = globals()[name.replace("-", "_")](make)
        archive = beside / f"{name}.vla"
        archive.unlink(missing_ok=True)
        story.run("check", story.volume)
        story.run("dump", story.volume, "--whole", archive)
        (beside / f"{name}.sums").write_text("".join(story.sums()))


main()
