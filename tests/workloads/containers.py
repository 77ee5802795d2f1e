#!/usr/bin/env python3
"""Images of containers, as a node pulls them: layers are read, checked and unpacked into an overlay's directories, a newer image shares most of
them, and the older one goes. The store is Podman's and CRI-O's (containers/storage, by skopeo), the layers are made of Debian's packages."""

import glob
import os
import subprocess

from common import Skip, main, tool

BASE = ("libpython3.11-stdlib", "perl-modules-5.36")
OLDER, NEWER = ("git-man", "manpages-dev")


def said(*command, **how):
    done = subprocess.run(command, capture_output=True, check=False, **how)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')[-1000:]}")
    return done.stdout


def layer(name, path):
    """A package's files as a tar, the same each time."""
    try:
        said(tool("apt-get"), "-o", "APT::Sandbox::User=root", "download", name, cwd=path, timeout=300)
    except (subprocess.TimeoutExpired, SystemExit) as why:
        raise Skip(f"no package {name}: {why}") from why
    (archive,) = glob.glob(f"{glob.escape(path)}/{name}_*.deb")
    said(tool("dpkg-deb"), "-x", archive, f"{path}/{name}")
    said("tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", f"{path}/{name}.tar", "-C", f"{path}/{name}", ".")
    return f"{path}/{name}.tar"


def make(_, path):
    tool("skopeo")
    umoci = tool("umoci")
    os.makedirs(path)
    said(umoci, "init", "--layout", f"{path}/images")
    base = [layer(name, path) for name in BASE]
    for tag, top in (("older", OLDER), ("newer", NEWER)):
        image = f"{path}/images:{tag}"
        said(umoci, "new", "--image", image)
        for tar in [*base, layer(top, path)]:
            said(umoci, "raw", "add-layer", "--image", image, "--history.created", "2026-01-01T00:00:00Z", tar)


def source(job):
    return job.source("images", lambda path: make(job, path))


def run(job):
    images, store = f"{source(job)}/images", job.path("store")
    # Run-time state is not on the disk, and no user's configuration is read.
    where = f"containers-storage:[overlay@{store}+{job.sources}/storage-run]localhost/app"
    skopeo = [tool("skopeo"), "--insecure-policy"]
    try:
        for tag in ("older", "newer"):
            said(*skopeo, "copy", "-q", f"oci:{images}:{tag}", f"{where}:{tag}")
        said(*skopeo, "delete", f"{where}:older")
    finally:
        # It is a mount of a directory on itself.
        if subprocess.run(["mountpoint", "-q", f"{store}/overlay"], check=False).returncode == 0:
            said("umount", f"{store}/overlay")
    unpacked = glob.glob(f"{glob.escape(store)}/overlay/*/diff/usr")
    if len(unpacked) != len(BASE) + 1:
        raise SystemExit(f"skopeo: {len(unpacked)} layers are unpacked")
    return 2 * (len(BASE) + 1)


main(run, source)
