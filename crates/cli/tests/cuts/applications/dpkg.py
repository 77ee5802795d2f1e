"""dpkg, which installs and upgrades small packages below a folder; the mode is how these are compressed. It syncs files and its own
database, and not the folders of the files: a package counts as installed when a sync of the file system has followed.

A cut in the midst of an installation leaves a package that is in part there, and `dpkg --audit` says so; what a person does then,
`dpkg --install` once more, must heal it."""

PACKAGES = 9


def here():
    missing = [name for name in ("dpkg", "dpkg-deb", "dpkg-query") if shutil.which(name) is None]
    if missing:
        sys.exit(f"there is no {missing[0]}")
    if os.geteuid() != 0:
        sys.exit("it needs root")


def run(*words):
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    out = subprocess.run(words, capture_output=True, text=True, env={"PATH": path, "LC_ALL": "C"})
    if out.returncode != 0:
        sys.exit(f"{words} ends with {out.returncode}: {out.stdout[-2000:]}{out.stderr[-2000:]}")
    return out.stdout


def package(n):
    return f"p{n % PACKAGES}"


def build(place, n, seed, mode):
    """The package of a transaction; its files are the rows."""
    tree = os.path.join(place, f"tree{n}")
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(f"{tree}/DEBIAN")
    os.makedirs(f"{tree}/opt/{package(n)}")
    with open(f"{tree}/DEBIAN/control", "w") as file:
        file.write(f"Package: {package(n)}\nVersion: {n}\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: n\n")
    for key, body in transaction(n, seed):
        with open(f"{tree}/opt/{package(n)}/row{key}", "w") as file:
            file.write(body)
    run("dpkg-deb", f"-Z{mode}", "-z1", "--root-owner-group", "-b", tree, f"{place}/{n}.deb")
    shutil.rmtree(tree)
    return f"{place}/{n}.deb"


def dpkg(folder, *words):
    return run("dpkg", f"--root={folder}", f"--log={os.devnull}", "--force-not-root", *words)


def write(folder, mode, seed):
    for name in ("info", "updates"):
        os.makedirs(f"{folder}/var/lib/dpkg/{name}")
    for name in ("status", "available"):
        open(f"{folder}/var/lib/dpkg/{name}", "w").close()
    run("sync", "-f", folder)
    acknowledge(0)
    with tempfile.TemporaryDirectory() as place:
        for n in transactions(folder):
            deb = build(place, n, seed, mode)
            dpkg(folder, "--install", deb)
            os.remove(deb)
            run("sync", "-f", folder)
            acknowledge(n)


def installed(folder):
    form = "-f=${Package} ${Version} ${db:Status-Abbrev}\\n"
    lines = [line.split() for line in run("dpkg-query", f"--admindir={folder}/var/lib/dpkg", "-W", form).splitlines()]
    return {line[0]: line[1:] for line in lines}


def has(folder, n, seed):
    """All files of a package, and no others."""
    place = f"{folder}/opt/{package(n)}"
    found = {}
    for name in os.listdir(place):
        with open(f"{place}/{name}") as file:
            found[name] = file.read()
    wrong = found != {f"row{key}": body for key, body in transaction(n, seed)}
    if wrong:
        sys.exit(f"the files of {package(n)} are not those of version {n}: {sorted(found)}")


def check(folder, seed, last):
    status = installed(folder)
    for n in range(max(1, last - PACKAGES + 2), last + 1):
        # The next transaction is about another package, so this one is as it was acknowledged.
        if status.get(package(n)) != [str(n), "ii"]:
            sys.exit(f"transaction {n} was acknowledged, and {package(n)} is {status.get(package(n))}")
        has(folder, n, seed)
    # The interrupted operation is repeated. It must be the only one: this life may be cut as well, and would then have
    # acknowledged data in part.
    before = last + 1 - PACKAGES
    is_begun = status.get(package(last + 1)) != ([str(before), "ii"] if before > 0 else None)
    there = last + 1 if is_begun else last
    if is_begun:
        with tempfile.TemporaryDirectory() as place:
            dpkg(folder, "--install", build(place, there, seed, "none"))
    audit = dpkg(folder, "--audit")
    if audit:
        sys.exit(f"dpkg --audit: {audit}")
    for n in range(max(1, there - PACKAGES + 1), there + 1):
        has(folder, n, seed)


main(here, write, check)
