"""What Python costs a run: the same run by the command line and by the package, in turn, each as a process of its own.

`VELLUM` names the command. Two figures: processor time, start of the interpreter and of the package included, and without that
start, which a run of no length shows. The quotients are medians of the pairs'.
"""

import os
import resource
import statistics
import subprocess
import sys

ROUNDS = int(os.environ.get("ROUNDS", "7"))
REQUESTS = int(os.environ.get("REQUESTS", "8000000"))
COMMAND = os.environ.get("VELLUM", "vellum")
PROGRAM = """
import sys, vellum
if sys.argv[1] != "0":
    vellum.run("zipf", "oftl", sys.argv[2], capacity="1G", op=28, precondition="fill", requests=int(sys.argv[1]))
"""


def seconds(command: list[str]) -> float:
    """The processor time that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def by_command(policy: str) -> float:
    """That of the run by the command line."""
    run = [COMMAND, "lab", "run", "--workload", "zipf", "--device", "oftl", "--capacity", "1G", "--op", "28"]
    return seconds([*run, "--precondition", "fill", "--requests", str(REQUESTS), "--policy", policy])


def by_package(policy: str, requests: int) -> float:
    """That of the run by the package; with no requests that of its start alone."""
    return seconds([sys.executable, "-c", PROGRAM, str(requests), policy])


if __name__ == "__main__":
    for policy in ("base", "vellum"):
        pairs = [(by_command(policy), by_package(policy, REQUESTS), by_package(policy, 0)) for _ in range(ROUNDS)]
        command, package, start = (statistics.median(column) for column in zip(*pairs))
        whole = statistics.median(p / c for c, p, _ in pairs)
        without = statistics.median((p - s) / c for c, p, s in pairs)
        print(f"{policy}: {command:.2f} s by the command, {package:.2f} s by the package: {whole:.3f}, {without:.3f} without its start of {start:.2f} s")
