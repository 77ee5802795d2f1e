"""Writes to a volume until its server is killed, and looks what is there: PROGRAM VOLUME LIVES SEED [fio]. See tests/map_memory.sh."""

import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import threading

BLOCK = 4096
LEAF = 1024  # LBAs
PLACES = 4000
KEPT = "1M"  # 256 leaves of the map
LEAVES = 65536  # of 256 GiB
HALF = 150_000  # blocks of 1200 MiB, which have 293 leaves: fio writes to these, and we to as many behind them

program, volume, lives, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
has_fio = "fio" in sys.argv[5:]
chance = random.Random(seed)
buffer = mmap.mmap(-1, BLOCK)


def run(*arguments: str) -> str:
    done = subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def content(lba: int, number: int) -> bytes:
    """What write `number` puts there; every third compresses to nothing."""
    body = bytes([number & 0xFF]) * BLOCK if number % 3 == 0 else random.Random(lba * 1_000_003 + number).randbytes(BLOCK)
    return struct.pack("<QQ", lba, number) + body[16:]


def attach() -> tuple[str, int]:
    device = run("attach", volume).split()[0]
    return device, next(served["pid"] for served in json.loads(run("list", "--json")) if served["path"] == volume)


def found(disk: int, lba: int, numbers: list[int]) -> int:
    """Which of these writes is there; 0: none."""
    os.preadv(disk, [buffer], lba * BLOCK)
    of, number = struct.unpack("<QQ", buffer[:16])
    if buffer[:] == bytes(BLOCK):
        return 0
    if of != lba or number not in numbers or buffer[:] != content(lba, number):
        raise SystemExit(f"seed {seed}: LBA {lba} holds what was never written there ({of}, {number})")
    return number


def look(disk: int, written: dict[int, list[int]], durable: int) -> int:
    """Holds the disk against a prefix of the writes that has all up to `durable`; what its last is."""
    there = {lba: found(disk, lba, numbers) for lba, numbers in written.items()}
    last = max([durable, *there.values()])
    for lba, numbers in written.items():
        wanted = max([number for number in numbers if number <= last], default=0)
        if there[lba] != wanted:
            raise SystemExit(f"seed {seed}: LBA {lba} has write {there[lba]} and not {wanted}; {durable} was fsynced, {last} is there")
        written[lba] = [wanted] if wanted else []
    return last


def write(disk: int, written: dict[int, list[int]], number: int) -> tuple[int, int]:
    """Writes until the server is gone: the last write, and the last that was fsynced."""
    durable = number
    try:
        while True:
            for _ in range(chance.randrange(1, 400)):
                lba, number = chance.choice(places), number + 1
                written.setdefault(lba, []).append(number)
                buffer[:] = content(lba, number)
                os.pwritev(disk, [buffer], lba * BLOCK)
            os.fsync(disk)
            durable = number
    except OSError:
        return number, durable


def fio(device: str) -> subprocess.Popen:
    size = f"--size={HALF * BLOCK}"
    how = ["--name=beside", "--rw=randwrite", "--bsrange=4k-64k", "--direct=1", "--ioengine=libaio", "--iodepth=16"]
    more = ["--norandommap", "--refill_buffers", "--time_based", "--runtime=600", f"--filename={device}", size]
    return subprocess.Popen(["fio", *how, *more], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if os.path.exists(volume):
    os.unlink(volume)
run("create", volume, "--size", "1200M" if has_fio else "256G", "--set", f"map-memory={KEPT}")
spread = range(HALF, 2 * HALF) if has_fio else range(0, LEAVES * LEAF, LEAF)
places = chance.sample(spread, PLACES)
written: dict[int, list[int]] = {}
number = durable = 0
for life in range(lives + 1):
    device, server = attach()
    disk = os.open(device, os.O_RDWR | os.O_DIRECT)
    kept = look(disk, written, durable)
    print(f"life {life}: {len(written)} blocks, writes up to {kept} are there; {number - kept} were not fsynced and are gone", flush=True)
    if life == lives:
        os.close(disk)
        run("detach", volume)
        break
    beside = fio(device) if has_fio else None
    killer = threading.Timer(chance.uniform(0.5, 8 if has_fio else 4), os.kill, (server, signal.SIGKILL))
    killer.start()
    number, durable = write(disk, written, max(number, kept))
    killer.join()
    os.close(disk)
    if beside:
        beside.kill()
        beside.wait()
    subprocess.run([program, "detach", volume], stdin=subprocess.DEVNULL, capture_output=True)
