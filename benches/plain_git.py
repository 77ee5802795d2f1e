#!/usr/bin/env python3
"""Power cuts under git on a plain file system, for no volume is here: why `make cuts` does not hold git on a btrfs.

    benches/plain_git.py ext4|xfs|btrfs LIVES    # needs root, and mkfs.xfs besides the file system's own programs

As `plain_cuts.py` does, clones of the file below a loop device are the cuts. It tells what `git fsck` says of each."""
import argparse, ctypes, os, pathlib, subprocess, sys, tempfile, threading, time

MAKE = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}
CUTS = 14
PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "crates/cli/tests/cuts/applications"


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], check=check, text=True, capture_output=True)
    return done.stdout.strip(), done.stderr.strip(), done.returncode


def others(folder, stop):
    """Somebody else who writes, and syncs now a file and now all: git's files are then in part in one transaction of the file system and in
    part in the next one."""
    folder.mkdir()
    system, number = ctypes.CDLL(None), 0
    while not stop.exists():
        number += 1
        with open(folder / f"f{number % 40}", "w") as file:
            file.write("x" * 5000)
            file.flush()
            if number % 3:
                os.fsync(file.fileno())
            else:
                system.syncfs(file.fileno())


def live(kind, seed, host, mount):
    """One life: how many cuts, and what was found after them."""
    image, program = host / "image", (PROGRAMS / "common.py").read_text() + (PROGRAMS / "git.py").read_text()
    run("truncate", "-s", "416M", image)
    run(*MAKE[kind], image)
    device, _, _ = run("losetup", "-f", "--show", "--direct-io=on", image)
    run("mount", device, mount)
    folder, clones = mount / "application", []
    folder.mkdir()
    command = [sys.executable, "-I", "-c", program, "write", str(folder), "loose", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as git:
        git.stdout.readline()
        threads = [threading.Thread(target=others, args=(mount / f"d{n}", mount / "stop")) for n in range(2)]
        for thread in threads:
            thread.start()
        for number in range(CUTS):
            time.sleep(0.13)
            clones.append(host / f"cut{number}")
            run("cp", "--reflink=always", image, clones[-1])
        (mount / "stop").touch()
        git.communicate()
        for thread in threads:
            thread.join()
    run("umount", mount)
    run("losetup", "-d", device)
    found = []
    for clone in clones:
        device, _, _ = run("losetup", "-f", "--show", clone)
        run("mount", device, mount)
        for lock in (folder / ".git").rglob("*.lock"):
            lock.unlink()
        out, err, code = run("git", "-c", "safe.directory=*", "-C", folder, "fsck", "--full", "--strict", "--no-dangling", check=False)
        if code:
            found.append((out + err).replace("\n", "; "))
        run("umount", mount)
        run("losetup", "-d", device)
        clone.unlink()
    return len(clones), found


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("kind", choices=MAKE)
    words.add_argument("lives", type=int)
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        host, mount = pathlib.Path(folder) / "host", pathlib.Path(folder) / "mount"
        host.mkdir()
        mount.mkdir()
        run("truncate", "-s", "6G", f"{folder}/disk")
        run("mkfs.xfs", "-q", f"{folder}/disk")
        run("mount", "-o", "loop", f"{folder}/disk", host)
        cuts, complaints = 0, []
        try:
            for seed in range(asked.lives):
                more, found = live(asked.kind, seed, host, mount)
                cuts += more
                complaints += found
                print(f"life {seed}: {found}", flush=True)
        finally:
            run("umount", mount, check=False)
            run("umount", host, check=False)
        print(f"{cuts} cuts, git fsck complains after {len(complaints)}")


main()
