"""git that syncs all that it can sync (core.fsync=all); the mode is where it keeps its files: one by one, or packed now and then.
It syncs files and not folders, so that the name of a branch is durable when its file system says so: a commit counts as acknowledged
when a sync of the file system has followed."""

LINES = {"user.name": "n", "user.email": "n@example.org", "core.fsync": "all", "core.fsyncMethod": "fsync", "gc.auto": "0"}


def git(folder, *words, **more):
    command = ["git", "-C", folder]
    for name, value in LINES.items():
        command += ["-c", f"{name}={value}"]
    clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    out = subprocess.run([*command, *words], capture_output=True, text=True, env=clean, **more)
    if out.returncode != 0:
        sys.exit(f"git {words} ends with {out.returncode}: {out.stdout[-2000:]}{out.stderr[-2000:]}")
    return out.stdout


def here():
    if shutil.which("git") is None:
        sys.exit("there is no git")


def synced(folder):
    subprocess.run(["sync", "-f", folder], check=True)


def write(folder, mode, seed):
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "0")
    synced(folder)
    acknowledge(0)
    for n in transactions(folder):
        for key, body in transaction(n, seed):
            with open(os.path.join(folder, f"row{key}"), "w") as file:
                file.write(body)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", str(n))
        synced(folder)
        acknowledge(n)
        if mode == "packed" and n % 20 == 0:
            git(folder, "repack", "-q", "-a", "-d")
            git(folder, "pack-refs", "--all")


def check(folder, seed, last):
    # A lock of the interrupted command: git says that the user must remove it.
    for place, _, names in os.walk(os.path.join(folder, ".git")):
        for name in names:
            if name.endswith(".lock"):
                os.remove(os.path.join(place, name))
    git(folder, "fsck", "--full", "--strict", "--no-dangling")
    there = int(git(folder, "log", "-1", "--format=%s", "main"))
    must_have(there, last)
    commits = git(folder, "log", "--format=%s", "main").split()
    if commits != [str(n) for n in range(there, -1, -1)]:
        sys.exit(f"of {there} commits there are {commits}")
    names = git(folder, "ls-tree", "--name-only", "main").split()
    asked = "".join(f"main:{name}\n" for name in names)
    told = git(folder, "cat-file", "--batch=%(objectsize)", input=asked).split("\n")
    found = {int(name[3:]): body for name, body in zip(names, told[1::2])}
    if found != rows(there, seed):
        sys.exit(f"the files are not those of commit {there}")


main(here, write, check)
