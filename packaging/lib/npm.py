"""The npm packages, assembled by clients/node/pack.js and packed."""

from __future__ import annotations

import json
import pathlib
import tempfile

import common


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes a package for each platform, and the main package, which depends on them."""
    with tempfile.TemporaryDirectory() as folder:
        programs_by_name = [f"{platform.name}={common.server(platform, path)}" for platform, path in programs.items()]
        common.run(["node", str(common.ROOT / "clients" / "node" / "pack.js"), folder, *programs_by_name])
        for package in sorted(pathlib.Path(folder).iterdir()):
            for name, content in common.documents().items():
                (package / name).write_bytes(content)
            if (package / "bin").exists():
                add_man_pages(package)
            common.run(["npm", "pack", "--silent", "--pack-destination", str(out)], package)


def add_man_pages(package: pathlib.Path) -> None:
    """Adds the man pages in man/, listed in the manifest: npm links them for global installs."""
    (package / "man").mkdir()
    manifest = json.loads((package / "package.json").read_text())
    manifest["man"] = [f"./man/{name}" for name in common.man_pages()]
    for name, page in common.man_pages().items():
        (package / "man" / name).write_bytes(page)
    common.write_json(package / "package.json", manifest)
