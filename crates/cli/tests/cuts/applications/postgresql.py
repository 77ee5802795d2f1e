"""PostgreSQL with one session, checkpoints and a vacuum between its transactions; the mode is how it syncs its log (wal_sync_method)."""
import glob

NOBODY = 65534
PAGE = 8192


def binaries():
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    return max(folders, key=lambda folder: int(folder.split("/")[-2]), default=None)


def here():
    if binaries() is None or shutil.which("psql") is None:
        sys.exit("there is no PostgreSQL")


def become(user):
    """It refuses to be run by root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def tool(name, *words):
    out = subprocess.run([os.path.join(binaries(), name), *words], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{name} ends with {out.returncode}: {out.stdout[-2000:]}{out.stderr[-2000:]}")


class Server:
    """Up until it is stopped, and asked by one session. Little memory and a short log, so that it writes back and checkpoints often."""

    def __init__(self, folder, mode="fdatasync"):
        self.said = tempfile.TemporaryFile()
        options = {
            "listen_addresses": "", "unix_socket_directories": folder, "fsync": "on", "wal_sync_method": mode,
            "shared_buffers": "1MB", "min_wal_size": "2MB", "max_wal_size": "3MB", "max_connections": "8",
            "autovacuum_naptime": "1s", "huge_pages": "off", "jit": "off",
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [os.path.join(binaries(), "postgres"), "-D", os.path.join(folder, "data"), *words]
        self.process = subprocess.Popen(command, stdout=self.said, stderr=self.said)
        try:
            self.wait(folder)
        except BaseException:
            self.process.kill()
            raise
        client = ["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h", folder, "-U", "owner", "postgres"]
        pipe = subprocess.PIPE
        self.session = subprocess.Popen(client, stdin=pipe, stdout=pipe, stderr=self.said, text=True)

    def wait(self, folder):
        # It reports whether connections are accepted; the session finds any other error.
        asks = [os.path.join(binaries(), "pg_isready"), "-q", "-h", folder]
        end = time.monotonic() + 600
        while subprocess.run(asks).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                self.fail("it does not start")
            time.sleep(0.05)

    def fail(self, told):
        self.said.seek(0)
        sys.exit(f"{told}: {self.said.read().decode(errors='replace')[-2000:]}")

    def ask(self, orders):
        """Runs them; gives the lines of the answer."""
        try:
            self.session.stdin.write(f"{orders};\nSELECT '--done';\n")
            self.session.stdin.flush()
        except BrokenPipeError:
            self.fail("its client ends")
        answer = []
        for line in self.session.stdout:
            if line == "--done\n":
                return answer
            answer.append(line.rstrip("\n"))
        self.fail(f"{orders[:200]} fails")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.session.kill()
        # An orderly stop: sessions are ended, and a last checkpoint is made.
        self.process.terminate() if kind else self.process.send_signal(2)
        try:
            code = self.process.wait(600)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.fail("it does not stop")
        if kind is None and code != 0:
            self.fail(f"it ends with {code}")


def write(folder, mode, seed):
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    become(NOBODY)
    # Its own syncs of a thousand files are slow; one sync of the file system is enough.
    tool("initdb", "-N", "-k", "-A", "trust", "-U", "owner", "--locale=C", "--wal-segsize=1", "-D", f"{folder}/data")
    subprocess.run(["sync", "-f", folder], check=True)
    with Server(folder, mode) as server:
        server.ask("CREATE EXTENSION amcheck")
        server.ask("CREATE TABLE head(last integer); INSERT INTO head VALUES(0)")
        server.ask("CREATE TABLE t(key integer PRIMARY KEY, body text); CREATE INDEX bodies ON t(md5(body))")
        acknowledge(0)
        for n in transactions(folder):
            values = ", ".join(f"({key}, '{body}')" for key, body in transaction(n, seed))
            server.ask(
                f"BEGIN; INSERT INTO t VALUES {values} ON CONFLICT (key) DO UPDATE SET body = excluded.body;"
                f"UPDATE head SET last = {n}; COMMIT"
            )
            acknowledge(n)
            if n % 24 == 0:
                server.ask("CHECKPOINT")
            if n % 60 == 0:
                server.ask("VACUUM t; REINDEX TABLE t")


def cut_to_whole_pages(data):
    """Cut what is less than a page off the end of each file of a table or an index.

    PostgreSQL grows a file before the log tells of it, by a page of two blocks. ext4 may commit the file's
    size between the two. PostgreSQL takes no notice of half a page, but `pg_checksums` ends with an error.
    """
    for pattern in ("base/*/[0-9]*", "global/[0-9]*"):
        for file in glob.glob(f"{data}/{pattern}"):
            size = os.stat(file).st_size
            if size % PAGE:
                os.truncate(file, size - size % PAGE)


def check(folder, seed, last):
    become(os.stat(folder).st_uid)
    with Server(folder) as server:
        (there,) = server.ask("SELECT last FROM head")
        must_have(int(there), last)
        found = (line.split("|") for line in server.ask("SELECT key, body FROM t"))
        if {int(key): body for key, body in found} != rows(int(there), seed):
            sys.exit(f"the rows are not those of transaction {there}")
        tool("pg_amcheck", "-h", folder, "-U", "owner", "--heapallindexed", "postgres")
    cut_to_whole_pages(f"{folder}/data")
    tool("pg_checksums", "--check", "-D", f"{folder}/data")


main(here, write, check)
