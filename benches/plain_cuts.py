#!/usr/bin/env python3
"""Power cuts under a plain file system: what of `make cuts`'s complaints is the kernel's own, for no volume is here.

    benches/plain_cuts.py ext4|btrfs LOADS    # needs root, and mkfs.xfs besides the file system's own programs

The file system lives on a loop device with direct I/O, on a file of an XFS. While three threads work, that file is cloned
(`cp --reflink`): the clone is one instant, and has all that the device had answered. A power cut may leave just that. The clone is
mounted then. It is a complaint when it does not mount, or when a name is there that was taken away before its folder was synced.
A cut that loses what no sync has covered is not made: this finds less than the recordings do."""
import argparse, os, pathlib, random, subprocess, tempfile, threading, time

OPTIONS = {"ext4": ["-o", "data=journal"], "btrfs": []}
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
BYTES = {"ext4": "160M", "btrfs": "256M"}
OPERATIONS = {"ext4": 8000, "btrfs": 3000}
CUTS = 14
PAGE = 4096


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], check=check, text=True, capture_output=True)
    return done.stdout.strip() if done.returncode == 0 else None


class Worker:
    """Works in a folder of its own; no name comes a second time."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.files, self.count = [], 0
        # Names that were removed; and when a sync of the directory ended, with how many removals before it.
        self.gone, self.synced = [], []
        folder.mkdir()

    def page(self):
        kind = self.random.randrange(8)
        if kind == 0:
            return bytes(PAGE)
        if kind < 3:
            # A page that jbd2 has to escape.
            return (bytes.fromhex("c03b3998") + self.random.randbytes(40)).ljust(PAGE, b"\0")
        return self.random.randbytes(PAGE)

    def fresh(self):
        self.count += 1
        return f"f{self.count}" + ("-" + "long" * 40 if self.random.randrange(4) == 0 else "")

    def write(self, name):
        fd = os.open(self.folder / name, os.O_RDWR | os.O_CREAT)
        size = os.fstat(fd).st_size
        at = self.random.choice([size, self.random.randrange(size + 3 * PAGE), self.random.randrange(size + 1) // PAGE * PAGE])
        pages = self.random.choice([1, self.random.randrange(1, 4), self.random.randrange(1, 25)])
        data = b"".join(self.page() for _ in range(pages))
        os.pwrite(fd, data[: self.random.choice([len(data), self.random.randrange(1, 3000)])], min(at, 64 * PAGE))
        os.close(fd)

    def sync(self, path):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def rename(self, name, to):
        os.rename(self.folder / name, self.folder / to)
        self.gone.append(name)
        self.files = [file for file in self.files if file not in (name, to)] + [to]

    def one(self):
        what, name = self.random.randrange(100), self.random.choice(self.files or [None])
        if len(self.files) < 5 or what < 16 and len(self.files) < 40:
            self.files.append(self.fresh())
            self.write(self.files[-1])
        elif what < 44:
            self.write(name)
        elif what < 50:
            os.truncate(self.folder / name, self.random.randrange(os.stat(self.folder / name).st_size + PAGE))
        elif what < 53:
            self.rename(name, self.fresh())
        elif what < 55:
            if (onto := self.random.choice(self.files)) != name:
                self.rename(name, onto)
        elif what < 58:
            fresh = self.fresh()
            self.write(fresh)
            self.sync(self.folder / fresh)
            self.rename(fresh, name)
        elif what < 66:
            os.unlink(self.folder / name)
            self.files.remove(name)
            self.gone.append(name)
        elif what < 90:
            self.sync(self.folder / name)
        elif what < 98:
            before = len(self.gone)
            self.sync(self.folder)
            self.synced.append((time.monotonic(), before))
        else:
            os.sync()

    def back(self, mount, cut):
        """Names that are there after a cut, and must not be."""
        counts = [before for at, before in self.synced if at < cut]
        folder = mount / self.folder.name
        if not counts or not folder.is_dir():
            return []
        return sorted(set(self.gone[: counts[-1]]) & set(os.listdir(folder)))


def live(kind, seed, host, mount):
    """One life; complaints, and how many cuts."""
    image = host / "image"
    run("truncate", "-s", BYTES[kind], image)
    run(*MAKE[kind], image)
    device = run("losetup", "-f", "--show", "--direct-io=on", image)
    run("mount", *OPTIONS[kind], device, mount)
    workers = [Worker(mount / f"d{number}", seed * 8 + number) for number in range(3)]
    threads = [threading.Thread(target=lambda worker=worker: [worker.one() for _ in range(OPERATIONS[kind])]) for worker in workers]
    pauses, cuts = random.Random(seed), []
    for thread in threads:
        thread.start()
    while len(cuts) < CUTS and any(thread.is_alive() for thread in threads):
        time.sleep(pauses.random() / 4)
        cuts.append((time.monotonic(), host / f"cut{len(cuts)}"))
        run("cp", "--reflink=always", image, cuts[-1][1])
    for thread in threads:
        thread.join()
    run("umount", mount)
    run("losetup", "-d", device)
    complaints = []
    for number, (at, clone) in enumerate(cuts):
        device = run("losetup", "-f", "--show", clone)
        if run("mount", *OPTIONS[kind], device, mount, check=False) is None:
            complaints.append(f"seed {seed} cut {number}: it does not mount")
        else:
            back = [name for worker in workers for name in worker.back(mount, at)]
            complaints += [f"seed {seed} cut {number}: {back} are back"] if back else []
            run("umount", mount)
        run("losetup", "-d", device)
        clone.unlink()
    image.unlink()
    return complaints, len(cuts)


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("kind", choices=OPTIONS)
    asked.add_argument("loads", type=int)
    asked = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        host, mount, memory = (pathlib.Path(folder) / name for name in ("host", "mount", "memory"))
        for place in (host, mount, memory):
            place.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=2G", "tmpfs", memory)
        run("truncate", "-s", "1800M", memory / "xfs")
        run("mkfs.xfs", "-q", "-m", "reflink=1", memory / "xfs")
        run("mount", "-o", "loop", memory / "xfs", host)
        cuts, bad = 0, []
        for seed in range(asked.loads):
            complaints, made = live(asked.kind, seed, host, mount)
            cuts += made
            bad += complaints
            for complaint in complaints:
                print(complaint, flush=True)
        run("umount", host)
        run("umount", memory)
    print(f"{asked.kind}: {cuts} cuts of {asked.loads} lives, {len(bad)} complaints")


main()
