#!/usr/bin/env python3
"""Whether the kernel's journal has wrong checksums of its own making: ext4, `data=journal`, on a plain loop device.

    benches/journal_truncate.py truncate|write SECONDS    # needs root, mkfs.ext4 and debugfs

No volume is here, and no power cut. While a large transaction is committed, the files of its last blocks are truncated to lengths within
their page (or, for comparison, written to). Then the file system is unmounted, and each copy in the journal is held against the
checksum in its tag. A copy that is wrong is shown with the page that it was before: if that has the tag's sum, the page was cut short
after the sum was taken and before it was written. After a power cut the kernel would say of it "Invalid checksum recovering data block"."""
import argparse, ctypes, os, pathlib, random, struct, subprocess, tempfile, threading, time

FILES, PAGE = 40, 4096
MAGIC = bytes.fromhex("c03b3998")
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(crc, data):
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, text=True, capture_output=True).stdout.strip()


def change(kind, fd, at, begun):
    begun.wait()
    if kind == "truncate":
        os.ftruncate(fd, at)
    else:
        os.pwrite(fd, b"x" * (PAGE - at), at)


def live(kind, mount, seconds, drawn):
    """Works; all pages that the files had."""
    libc, pages = ctypes.CDLL(None), set()
    folder = os.open(mount, os.O_RDONLY)
    large, other, *files = (os.open(mount / f"f{n}", os.O_RDWR | os.O_CREAT) for n in range(FILES + 2))
    noise, end = drawn.randbytes(2500 * PAGE), time.monotonic() + seconds
    while time.monotonic() < end:
        libc.syncfs(folder)
        # What a truncate has to wait for is first in the transaction, and the pages that it shortens are last.
        os.pwrite(other, b"x" * 5000, 0)
        os.ftruncate(other, 0)
        for fd in files:
            os.utime(fd)
        os.pwrite(large, noise, 0)
        for fd in files:
            page = drawn.randbytes(PAGE)
            pages.add(page)
            os.pwrite(fd, page, 0)
        begun = threading.Event()
        threads = [threading.Thread(target=change, args=(kind, fd, drawn.randrange(100, 4000), begun)) for fd in files]
        threads.append(threading.Thread(target=libc.syncfs, args=(folder,)))
        for thread in threads:
            thread.start()
        time.sleep(drawn.random() / 100)
        begun.set()
        for thread in threads:
            thread.join()
    for fd in (folder, large, other, *files):
        os.close(fd)
    return pages


def copies(journal):
    """Of each descriptor whose transaction goes on behind it: number, home, copy, sum."""
    blocks = [journal[at : at + PAGE] for at in range(0, len(journal), PAGE)]
    (first,) = struct.unpack(">I", blocks[0][20:24])
    after = lambda at: at + 1 if at + 1 < len(blocks) else first
    for at, block in enumerate(blocks):
        if block[:8] != MAGIC + b"\0\0\0\1":
            continue
        found, place, from_, flags = [], at, 12, 0
        while not flags & 8 and from_ + 16 <= PAGE - 4:
            home, flags, _, total = struct.unpack(">IIII", block[from_ : from_ + 16])
            from_ += 16 if flags & 2 else 32
            place = after(place)
            found.append((block[8:12], home, blocks[place], total))
        if blocks[after(place)][:4] == MAGIC and blocks[after(place)][8:12] == block[8:12]:
            yield from found


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("kind", choices=["truncate", "write"])
    asked.add_argument("seconds", type=float)
    asked = asked.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        image, mount, log = (pathlib.Path(folder) / name for name in ("image", "mount", "journal"))
        mount.mkdir()
        run("truncate", "-s", "200M", image)
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=64", image)
        device = run("losetup", "-f", "--show", image)
        run("mount", "-o", "data=journal", device, mount)
        pages = live(asked.kind, mount, asked.seconds, random.Random(1))
        run("umount", mount)
        run("losetup", "-d", device)
        run("debugfs", "-R", f"dump <8> {log}", image)
        journal = log.read_bytes()
    seed, right, wrong, cut = crc32c(0xFFFFFFFF, journal[0x30:0x40]), 0, 0, 0
    for number, home, copy, total in copies(journal):
        begun = crc32c(seed, number)
        if crc32c(begun, copy) == total:
            right += 1
            continue
        kept = copy.rstrip(b"\0")
        was = [page for page in pages if page.startswith(kept) and crc32c(begun, page) == total]
        wrong, cut = wrong + 1, cut + len(was)
        told = f"it ends in {PAGE - len(kept)} zeros; {'with the page as it was before, the sum is right' if was else 'no page explains it'}"
        print(f"transaction {int.from_bytes(number, 'big')}, block {home}: {told}")
    print(f"{asked.kind}: {right} copies are right, {wrong} are not, {cut} of these were cut short after their sum was taken")


main()
