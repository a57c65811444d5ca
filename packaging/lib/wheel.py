"""Wheels: vellum-db contains the program, and pytest-vellum depends on it."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import zipfile

import common

SOURCE = common.ROOT / "clients" / "python"


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes vellum-db for each platform, and pytest-vellum for all platforms."""
    for platform, folder in programs.items():
        program = common.server(platform, folder)
        files = {**sources("vellum_db"), f"vellum_db/bin/{program.name}": program.read_bytes()}
        # Other packages have commands named `vellum` too; `vellum-db` always works.
        commands = "".join(f"{name} = vellum_db.program:main\n" for name in ["vellum", "vellum-db"])
        extra = {"entry_points.txt": f"[console_scripts]\n{commands}".encode()}
        # pip copies .data/data below the environment's prefix, where man searches: share/man is next to bin.
        files.update({f"{stem('vellum-db')}.data/data/share/man/man1/{name}": page
                      for name, page in common.man_pages().items()})
        write(out, "vellum-db", f"py3-none-{platform.wheel}", files, common.SUMMARY, common.ROOT / "README.md", [], extra)
    extra = {"entry_points.txt": b"[pytest11]\nvellum = pytest_vellum.plugin\n"}
    summary = "A MongoDB-compatible server for test suites: a fresh database for every test in microseconds"
    requirements = [f"vellum-db=={common.version()}", "pymongo>=4.9", "pytest>=7"]
    write(out, "pytest-vellum", "py3-none-any", sources("pytest_vellum"), summary, SOURCE / "README.md", requirements, extra)


def stem(name: str) -> str:
    """Returns the beginning of the names of files and folders in a wheel."""
    return f"{name.replace('-', '_')}-{common.version()}"


def sources(module: str) -> dict[str, bytes]:
    """Returns a module's files."""
    root = SOURCE / "src"
    paths = sorted(path for path in (root / module).rglob("*") if path.is_file() and path.suffix in {".py", ".typed"})
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def write(out: pathlib.Path, name: str, tag: str, files: dict[str, bytes], summary: str, readme: pathlib.Path,
          requirements: list[str], extra: dict[str, bytes] | None = None) -> None:
    """Writes one wheel in the binary distribution format."""
    version = common.version()
    info = f"{stem(name)}.dist-info"
    metadata = [
        "Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", f"Summary: {summary}",
        f"License-Expression: {common.LICENCE}", "License-File: LICENSE", "License-File: NOTICE", "License-File: THIRD-PARTY-LICENSES",
        f"Project-URL: Homepage, {common.HOMEPAGE}", f"Project-URL: Changelog, {common.HOMEPAGE}/blob/main/CHANGELOG.md",
        "Requires-Python: >=3.9", "Description-Content-Type: text/markdown",
        *(f"Requires-Dist: {requirement}" for requirement in requirements),
    ]
    python, _, platforms = tag.partition("-none-")
    expanded = "".join(f"Tag: {python}-none-{platform}\n" for platform in platforms.split("."))
    files = dict(files)
    files[f"{info}/METADATA"] = ("\n".join(metadata) + "\n\n").encode() + readme.read_bytes()
    pure = "true" if platforms == "any" else "false"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: vellum\nRoot-Is-Purelib: {pure}\n{expanded}".encode()
    files.update({f"{info}/licenses/{name}": content for name, content in common.documents().items()})
    files.update({f"{info}/{name}": content for name, content in (extra or {}).items()})
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(out / f"{stem(name)}-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/bin/" in path else 0o100644) << 16
            archive.writestr(entry, content)


def digest(content: bytes) -> str:
    """Returns a digest in the form of RECORD."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
