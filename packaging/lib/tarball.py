"""The tarball: program, lab, man pages, completions."""

from __future__ import annotations

import pathlib

import common

INSTALL = """Vellum {version}

Copy bin/ and share/ to /usr/local, or run bin/vellum in this folder. bin/vellum needs no other file, except that
`vellum lab` runs bin/vellum-lab. Through a link named mongod, bin/vellum accepts mongod's options.
"""


def contents(platform: common.Platform, folder: pathlib.Path) -> dict[str, tuple[bytes, int]]:
    """Returns the files installed below a prefix."""
    files = {f"bin/vellum{platform.suffix}": (common.server(platform, folder).read_bytes(), 0o755)}
    lab = common.lab(platform, folder)
    if lab is not None:
        files[f"bin/{lab.name}"] = (lab.read_bytes(), 0o755)
    pages = common.pages()
    files.update({f"share/man/man1/{name}": (page, 0o644) for name, page in common.man_pages().items()})
    for name, place in [("vellum.bash", "bash-completion/completions/vellum"),
                        ("vellum.fish", "fish/vendor_completions.d/vellum.fish"),
                        ("_vellum", "zsh/vendor-completions/_vellum")]:
        files[f"share/{place}"] = ((pages / name).read_bytes(), 0o644)
    return files


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes a tarball for each platform."""
    for platform, folder in programs.items():
        stem = f"vellum-{common.version()}-{platform.name}"
        files = dict(contents(platform, folder))
        files["INSTALL"] = (INSTALL.format(version=common.version()).encode(), 0o644)
        files.update({name: (content, 0o644) for name, content in common.documents().items()})
        archive = common.tar({f"{stem}/{name}": file for name, file in files.items()})
        (out / f"{stem}.tar.gz").write_bytes(common.gzipped(archive))
