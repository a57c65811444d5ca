"""The server's program: its path, and the commands ``vellum`` and ``vellum-db``, which run it."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Optional

NAME = "vellum.exe" if os.name == "nt" else "vellum"


class StartError(Exception):
    """The server did not start; the text is its own message."""


def carried() -> pathlib.Path:
    """Returns the path of the program in a platform's wheel."""
    return pathlib.Path(__file__).parent / "bin" / NAME


def find_binary(binary: Optional[str] = None) -> str:
    """Returns the path of the program: the argument, VELLUM_BINARY, the program of this package, or the one
    in PATH."""
    wanted = binary or os.environ.get("VELLUM_BINARY")
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            named = "" if binary else ", which VELLUM_BINARY names"
            raise StartError(f"there is no program {wanted!r}{named}")
        return found
    if carried().is_file():
        return str(carried())
    found = shutil.which(NAME)
    if found is None:
        raise StartError(
            "there is no program vellum in this environment or on the path: `pip install vellum-db` brings it, and "
            "VELLUM_BINARY names one that is elsewhere"
        )
    return found


def main() -> int:
    """Replace this process by the program of the package."""
    program = str(carried())
    if not os.path.isfile(program):
        sys.exit(f"{program} is missing: `pip install vellum-db` from a wheel brings it")
    if os.name == "nt":
        return subprocess.call([program, *sys.argv[1:]])
    os.execv(program, ["vellum", *sys.argv[1:]])
