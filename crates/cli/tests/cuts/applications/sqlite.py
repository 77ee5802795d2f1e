"""SQLite, in the journal mode that is asked for."""
import sqlite3


def here():
    pass


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
    acknowledge(0)
    for n in transactions(folder):
        run("BEGIN IMMEDIATE")
        for key, body in transaction(n, seed):
            run("INSERT OR REPLACE INTO t VALUES(?, ?)", (key, body))
        run("UPDATE head SET last = ?", (n,))
        run("COMMIT")
        acknowledge(n)
    base.close()


def check(folder, seed, last):
    base = sqlite3.connect(os.path.join(folder, "base"), isolation_level=None)
    run = base.execute
    sound = run("PRAGMA integrity_check").fetchall()
    if sound != [("ok",)]:
        sys.exit(f"integrity_check: {sound[:5]}")
    (there,) = run("SELECT last FROM head").fetchone()
    must_have(there, last)
    if dict(run("SELECT key, body FROM t")) != rows(there, seed):
        sys.exit(f"the rows are not those of transaction {there}")
    base.close()


main(here, write, check)
