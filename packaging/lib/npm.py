"""npm's packages: put together by clients/node/pack.js, and packed."""

from __future__ import annotations

import pathlib
import tempfile

import common


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """One for each platform, and the one that asks for its platform's."""
    with tempfile.TemporaryDirectory() as folder:
        named = [f"{platform.name}={common.server(platform, path)}" for platform, path in programs.items()]
        common.run(["node", str(common.ROOT / "clients" / "node" / "pack.js"), folder, *named])
        for package in sorted(pathlib.Path(folder).iterdir()):
            for name, content in common.documents().items():
                (package / name).write_bytes(content)
            common.run(["npm", "pack", "--silent", "--pack-destination", str(out)], package)
