"""What the applications share. Each is a program of three verbs: `here` fails and says what the machine lacks; `write FOLDER MODE SEED`
makes transactions until a file `stop` lies beside the folder, and prints the number of each that was acknowledged, from 0 on;
`check FOLDER SEED LAST` holds what is there against them: it is sound, no transaction up to LAST is lost, none is there in part."""
import hashlib, os, random, shutil, subprocess, sys, tempfile, time

ROWS = 300


def transaction(n, seed):
    """What a transaction does: rows that it writes, as pairs of key and body."""
    numbers = random.Random(f"{seed}-{n}")
    changes = {}
    for _ in range(numbers.randrange(1, 12)):
        key = numbers.randrange(ROWS)
        head = hashlib.sha256(b"%d %d" % (n, key)).hexdigest()
        changes[key] = head * numbers.randrange(1, 40)
    return sorted(changes.items())


def rows(there, seed):
    """All that so many transactions leave."""
    found = {}
    for n in range(1, there + 1):
        found.update(transaction(n, seed))
    return found


def transactions(folder):
    """Their numbers, until it is time to stop."""
    n = 1
    while not os.path.exists(os.path.join(folder, "..", "stop")):
        yield n
        n += 1


def acknowledge(n):
    print(n, flush=True)


def must_have(there, last):
    if there < last:
        sys.exit(f"transaction {last} was acknowledged, and the last that is there is {there}")


def main(here, write, check):
    verb, words = sys.argv[1], sys.argv[2:]
    if verb == "here":
        here()
    elif verb == "write":
        write(*words)
    else:
        folder, seed, last = words
        check(folder, seed, int(last))


