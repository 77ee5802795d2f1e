"""SQLite on a volume: `write FOLDER MODE SEED` makes transactions and prints the number of each that was acknowledged; `check FOLDER
SEED LAST` holds what is there against them: integrity_check, no transaction up to LAST is lost, none is there in part."""
import hashlib, os, random, sqlite3, sys


def transaction(n, seed, rows):
    """What a transaction does: rows that it writes, as pairs of key and body."""
    numbers = random.Random(f"{seed}-{n}")
    changes = {}
    for _ in range(numbers.randrange(1, 12)):
        key = numbers.randrange(rows)
        head = hashlib.sha256(b"%d %d" % (n, key)).hexdigest()
        changes[key] = head * numbers.randrange(1, 40)
    return sorted(changes.items())


def write(folder, mode, seed):
    base = sqlite3.connect(os.path.join(folder, "base"), isolation_level=None)
    run = base.execute
    run(f"PRAGMA journal_mode={mode}")
    # In a rollback journal, FULL does not sync the folder after the journal is gone.
    run("PRAGMA synchronous=EXTRA")
    run("PRAGMA wal_autocheckpoint=40")
    run("CREATE TABLE head(last INTEGER)")
    run("INSERT INTO head VALUES(0)")
    run("CREATE TABLE t(key INTEGER PRIMARY KEY, body TEXT)")
    run("CREATE INDEX bodies ON t(body)")
    print(0, flush=True)
    n = 0
    while not os.path.exists(os.path.join(folder, "..", "stop")):
        n += 1
        run("BEGIN IMMEDIATE")
        for key, body in transaction(n, seed, 300):
            run("INSERT OR REPLACE INTO t VALUES(?, ?)", (key, body))
        run("UPDATE head SET last = ?", (n,))
        run("COMMIT")
        print(n, flush=True)
    base.close()


def check(folder, seed, last):
    path = os.path.join(folder, "base")
    if last < 0:
        return
    base = sqlite3.connect(path, isolation_level=None)
    run = base.execute
    sound = run("PRAGMA integrity_check").fetchall()
    if sound != [("ok",)]:
        sys.exit(f"integrity_check: {sound[:5]}")
    (there,) = run("SELECT last FROM head").fetchone()
    if there < last:
        sys.exit(f"transaction {last} was acknowledged, and the last that is there is {there}")
    rows = {}
    for n in range(1, there + 1):
        rows.update(transaction(n, seed, 300))
    if dict(run("SELECT key, body FROM t")) != rows:
        sys.exit(f"the rows are not those of transaction {there}")
    base.close()


if sys.argv[1] == "write":
    write(*sys.argv[2:])
else:
    check(sys.argv[2], sys.argv[3], int(sys.argv[4]))
