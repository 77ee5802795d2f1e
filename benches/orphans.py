#!/usr/bin/env python3
"""Runs a command, and writes down what each process that it leaves behind has cost when that ends, as the kernel counted it:

    orphans.py FILE COMMAND...

A line each: its number, the bytes that it had written to storage, the seconds of processors that it took. `vellum attach` leaves a server; here
are all bytes of its life, the last ones included, which nobody can ask it for any more.
"""

import ctypes
import os
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36
# The unit in which the kernel counts a process's writes.
BLOCK_BYTES = 512


def main(path, command):
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit(f"orphans: {os.strerror(ctypes.get_errno())}")
    first = os.spawnvp(os.P_NOWAIT, command[0], command)
    # The command receives the signals too, and cleans up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGTERM))
    with open(path, "a", buffering=1, encoding="ascii") as file:
        while True:
            pid, status, usage = os.wait3(0)
            if pid == first:
                return os.waitstatus_to_exitcode(status)
            file.write(f"{pid} {usage.ru_oublock * BLOCK_BYTES} {usage.ru_utime + usage.ru_stime:.3f}\n")


sys.exit(main(sys.argv[1], sys.argv[2:]))
