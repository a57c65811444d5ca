"""The Go module with the compressed programs; a build includes only the program of its platform."""

from __future__ import annotations

import pathlib
import zipfile

import common

SOURCE = common.ROOT / "clients" / "go"

EMBED = """package vellumtest

import _ "embed"

//go:embed {name}
var program []byte

func init() {{ embedded = program }}
"""


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes the module's folder, and an archive of it."""
    folder = out / "vellumtest"
    folder.mkdir()
    for path in sorted(SOURCE.iterdir()):
        if path.is_file() and not path.name.endswith("_test.go"):
            (folder / path.name).write_bytes(path.read_bytes())
    for name, content in common.documents().items():
        (folder / name).write_bytes(content)
    for platform, programs_folder in programs.items():
        if platform.go:
            name = f"vellum_{platform.go}.gz"
            (folder / name).write_bytes(common.gzipped(common.server(platform, programs_folder).read_bytes()))
            # Go takes system and processor from a file's name.
            (folder / f"program_{platform.go}.go").write_text(EMBED.format(name=name))
    with zipfile.ZipFile(out / f"vellumtest-{common.version()}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(f"vellumtest/{path.name}", (2026, 1, 1, 0, 0, 0)), path.read_bytes())
