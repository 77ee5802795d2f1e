#!/usr/bin/env python3
"""Makes an image of a volume, and the list of what must be read from it: see README.md.

    make.py PROGRAM NAME [--create=ARGUMENT] [--serve=ARGUMENT] [--kill] [--snapshot]

PROGRAM is a `vellum` of any age. NAME.xz and NAME.sums are written beside this file."""
import argparse, hashlib, pathlib, random, signal, socket, struct, subprocess, tempfile, time

BLOCK, BYTES = 4096, 32 << 20
WORDS = "vellum parchment codex folio quire leaf margin gloss rubric ink quill scribe copy erase write keep".split()
EXPORT = "golden"


class Client:
    """An NBD client that also notes in `content` what the volume must hold."""

    def __init__(self, path, content):
        self.content = content
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        flags = self.take(18)[17] & 3
        name = EXPORT.encode()
        self.socket.sendall(struct.pack(">I8sII", flags, b"IHAVEOPT", 1, len(name)) + name)
        (size,) = struct.unpack(">Q2x", self.take(10))
        assert size == len(content), size
        if not flags & 2:
            self.take(124)

    def take(self, count):
        got = b""
        while len(got) < count:
            part = self.socket.recv(count - len(got))
            assert part, "the server hung up"
            got += part
        return got

    def ask(self, command, offset, length, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 7, offset, length) + data)
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        assert (magic, error) == (0x67446698, 0), (magic, error)

    def write(self, offset, data):
        self.ask(1, offset, len(data), data)
        self.content[offset : offset + len(data)] = data

    def flush(self):
        self.ask(3, 0, 0)

    def discard(self, offset, length):
        self.ask(4, offset, length)
        self.content[offset : offset + length] = bytes(length)


def text(chance, length=BLOCK):
    return " ".join(chance.choices(WORDS, k=length // 3)).encode()[:length]


def fill(client):
    """Text, noise and copies of it, zeros, changes large and small, discards. After a flush blocks are really written over."""
    chance = random.Random(1)
    for block in range(40):
        client.write(block * BLOCK, text(chance))
    noise = chance.randbytes(4 * BLOCK)
    client.write(1000 * BLOCK, noise)
    client.write(100 * BLOCK, chance.randbytes(2 * BLOCK))
    client.flush()
    for place in 2000, 7000:
        client.write(place * BLOCK, noise)
    client.write(4000 * BLOCK, bytes(16 * BLOCK))
    client.flush()
    # The second version of a block can be the base of a delta, the first cannot.
    for _ in range(3):
        for block in [*range(8, 16), 100, 7003]:
            client.write(block * BLOCK + 512, text(chance, 32))
        client.flush()
    for block in range(16, 20):
        client.write(block * BLOCK, text(chance))
    client.write(20 * BLOCK, bytes(2 * BLOCK))
    client.discard(32 * BLOCK, 4 * BLOCK)
    client.discard(2002 * BLOCK, BLOCK)
    client.flush()


def sums(content, prefix=""):
    """The whole, and ranges that say what is wrong: text, small changes, rewritten, discarded, noise and its copies, zeros."""
    places = [(0, BYTES // BLOCK), (0, 8), (8, 8), (16, 6), (32, 4), (100, 2), (1000, 4), (2000, 4), (7000, 4), (4000, 16)]
    for place, count in places:
        digest = hashlib.sha256(content[place * BLOCK : (place + count) * BLOCK]).hexdigest()
        yield f"{digest} {place * BLOCK} {count * BLOCK}{prefix}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("name")
    parser.add_argument("--create", action="append", default=[])
    parser.add_argument("--serve", action="append", default=[])
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--snapshot", action="store_true")
    args = parser.parse_args()
    beside = pathlib.Path(__file__).parent
    lines = []
    with tempfile.TemporaryDirectory(prefix="vellum-golden-") as folder:
        volume, listen = pathlib.Path(folder, EXPORT), pathlib.Path(folder, "s")
        run = lambda *words: subprocess.run([args.program, *map(str, words)], check=True)
        run("create", volume, f"--size={BYTES >> 20}M", *args.create)
        server = subprocess.Popen([args.program, "serve", str(volume), "--socket", str(listen), *args.serve])
        while not listen.exists():
            assert server.poll() is None, "the server ended"
            time.sleep(0.01)
        client = Client(listen, bytearray(BYTES))
        fill(client)
        if args.snapshot:
            run("snapshot", volume, "kept")
            lines += sums(client.content, " kept")
            client.write(4 * BLOCK, text(random.Random(2), 4 * BLOCK))
            client.discard(1000 * BLOCK, 2 * BLOCK)
            client.flush()
        lines = [*sums(client.content), *lines]
        server.send_signal(signal.SIGKILL if args.kill else signal.SIGTERM)
        server.wait()
        with open(beside / f"{args.name}.xz", "wb") as image:
            subprocess.run(["xz", "-9e", "--stdout", volume], stdout=image, check=True)
    (beside / f"{args.name}.sums").write_text("".join(lines))


if __name__ == "__main__":
    main()
