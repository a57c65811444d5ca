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
    """The server did not start. The text is the server's error message."""


def bundled_program() -> pathlib.Path:
    """Returns the path of the program in a platform's wheel."""
    return pathlib.Path(__file__).parent / "bin" / NAME


def find_binary(binary: Optional[str] = None) -> str:
    """Returns the path of the program: the argument, VELLUM_BINARY, the program of this package, or the one
    in PATH."""
    name = binary or os.environ.get("VELLUM_BINARY")
    if name:
        found = shutil.which(name)
        if found is None:
            source = "" if binary else " (from VELLUM_BINARY)"
            raise StartError(f"program {name!r} not found{source}")
        return found
    if bundled_program().is_file():
        return str(bundled_program())
    found = shutil.which(NAME)
    if found is None:
        raise StartError(
            "the program vellum is neither in this environment nor on the path: run `pip install vellum-db`, or set "
            "VELLUM_BINARY to its path"
        )
    return found


def main() -> int:
    """Replace this process by the program of the package."""
    program = str(bundled_program())
    if not os.path.isfile(program):
        sys.exit(f"{program} is missing: install vellum-db from a wheel")
    if os.name == "nt":
        return subprocess.call([program, *sys.argv[1:]])
    # A link named mongod selects mongod's options.
    name = "mongod" if pathlib.Path(sys.argv[0]).stem == "mongod" else "vellum"
    os.execv(program, [name, *sys.argv[1:]])
