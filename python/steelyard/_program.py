"""The command line from Python."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Iterable, Union

from ._error import FAILED, Error

VARIABLE = "STEELYARD"


def program() -> str:
    """The path of the program. Raises Error where there is none."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    packaged = pathlib.Path(__file__).parent / "bin" / "steelyard"
    if packaged.exists():
        return str(packaged)
    found = shutil.which("steelyard")
    if found is None or os.path.realpath(found) == os.path.realpath(sys.argv[0]):
        raise Error(f"the program steelyard is not in this package; {VARIABLE} may name it", FAILED)
    return found


def run(*arguments: Union[str, "os.PathLike[str]"], check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Runs the command line with the arguments; raises Error with its last line where it fails and ``check``."""
    done = subprocess.run([program(), *map(os.fspath, arguments)], text=True, capture_output=True)
    if check and done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = lines[-1] if lines else f"exit code {done.returncode}"
        raise Error(f"steelyard {' '.join(map(os.fspath, arguments))}: {last}", FAILED)
    return done


def report(folder: Union[str, "os.PathLike[str]"]) -> pathlib.Path:
    """Makes the page of a run's folder, and returns its path."""
    run("report", folder)
    return pathlib.Path(folder) / "report.html"


def verify(subject: Any, inputs: Any = None, **options: Any) -> Any:
    """Whether the integer model computes what was trained.

    Of a Module or Network a Verification, on ``inputs``: an array, a tuple of arrays, or for a Module also a loader of
    batches. Of the path of a run's folder the text that `steelyard verify` prints; raises Error where something differs.
    """
    if hasattr(subject, "verify"):
        if hasattr(subject, "named_modules"):
            return subject.verify(inputs, **options)
        return subject.verify(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)), **options)
    done = run("verify", subject, check=False)
    if done.returncode:
        raise Error((done.stderr.strip() or done.stdout.strip()), FAILED)
    return done.stdout


def main(arguments: Iterable[str] | None = None) -> None:
    """Becomes the program."""
    try:
        path = program()
    except Error as error:
        sys.exit(f"steelyard: {error}")
    os.execv(path, [path, *(sys.argv[1:] if arguments is None else arguments)])
