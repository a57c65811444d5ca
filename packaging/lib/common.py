"""Shared code of all packages: names of platforms, the version, files with fixed times."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform as machine
import re
import shutil
import subprocess
import tarfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("VELLUM_TEST_CACHE", ROOT / ".test-cache")) / "packaging"

SUMMARY = "A MongoDB-compatible document database in one small binary, whose durability is a dial"
LICENCE = "MPL-2.0"
HOMEPAGE = "https://github.com/vellum-db/vellum"

# Equal sources yield equal bytes: packages contain no build time.
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1767225600"))


@dataclasses.dataclass(frozen=True)
class Platform:
    """One system and processor, with its name in each kind of package."""

    name: str  # Node's
    triple: str  # Rust's
    wheel: str  # pip's
    debian: str = ""
    oci: str = ""
    go: str = ""

    @property
    def suffix(self) -> str:
        """Returns the suffix of a program's name."""
        return ".exe" if self.name.startswith("win32") else ""


PLATFORMS = {
    platform.name: platform
    for platform in [
        Platform("linux-x64", "x86_64-unknown-linux-gnu", "manylinux_2_17_x86_64.manylinux2014_x86_64",
                 "amd64", "amd64", "linux_amd64"),
        Platform("linux-arm64", "aarch64-unknown-linux-gnu", "manylinux_2_17_aarch64.manylinux2014_aarch64",
                 "arm64", "arm64", "linux_arm64"),
        Platform("darwin-x64", "x86_64-apple-darwin", "macosx_10_12_x86_64", go="darwin_amd64"),
        Platform("darwin-arm64", "aarch64-apple-darwin", "macosx_11_0_arm64", go="darwin_arm64"),
        Platform("win32-x64", "x86_64-pc-windows-msvc", "win_amd64", go="windows_amd64"),
    ]
}

# Seconds until a tool's progress is shown, and between lines of it.
PROGRESS_FIRST = 10
PROGRESS_EVERY = 30


def here() -> str | None:
    """Returns the name of this machine's platform, if packages exist for it."""
    systems = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32"}
    processors = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
    name = f"{systems.get(machine.system())}-{processors.get(machine.machine().lower())}"
    return name if name in PLATFORMS else None


# Input of a package: each platform's folder with vellum, and optionally vellum-lab.
Programs = dict[Platform, pathlib.Path]


def platform(name: str) -> Platform:
    """Returns the platform of a name. Exits with the known names for an unknown one."""
    if name not in PLATFORMS:
        raise SystemExit(f"unknown platform {name}; the platforms are {', '.join(PLATFORMS)}")
    return PLATFORMS[name]


@functools.cache
def version() -> str:
    """Returns the version of the workspace."""
    text = (ROOT / "Cargo.toml").read_text()
    found = re.search(r'^version = "(.*)"$', text, re.M)
    assert found, "Cargo.toml has no version"
    return found[1]


def server(platform: Platform, folder: pathlib.Path) -> pathlib.Path:
    """Returns the path of the server's program."""
    path = folder / f"vellum{platform.suffix}"
    if not path.is_file():
        raise SystemExit(f"{path} does not exist")
    return path


def lab(platform: Platform, folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the path of the lab's program, if it exists."""
    path = folder / f"vellum-lab{platform.suffix}"
    return path if path.is_file() else None


@functools.cache
def pages() -> pathlib.Path:
    """Returns a folder with man pages and shell completions, made from src/cli.rs without compiling a server."""
    out = CACHE / "pages"
    shutil.rmtree(out, ignore_errors=True)
    run(["cargo", "run", "--quiet", "--package", "pages", "--", str(out)], cwd=ROOT)
    return out


def man_pages() -> dict[str, bytes]:
    """Returns the compressed man pages by file name."""
    return {f"{page.name}.gz": gzipped(page.read_bytes()) for page in sorted(pages().glob("*.1"))}


def run(command: list[str], cwd: pathlib.Path | None = None, env: dict[str, str] | None = None) -> None:
    """Runs a tool. Prints its output after a failure, and its last line as progress after ten seconds."""
    begin, output = time.monotonic(), []
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        reader = threading.Thread(target=lambda: output.extend(process.stdout), daemon=True)
        reader.start()
        wait = PROGRESS_FIRST
        while True:
            try:
                process.wait(wait)
                break
            except subprocess.TimeoutExpired:
                wait = PROGRESS_EVERY
                last = output[-1].decode("utf-8", "replace").strip()[-80:] if output else pathlib.Path(command[0]).name
                print(f"   {time.monotonic() - begin:.0f} s: {last}", flush=True)
        reader.join()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}:\n{b''.join(output).decode('utf-8', 'replace')}")


def tar(files: dict[str, tuple[bytes, int]], links: dict[str, str] | None = None,
        folders: dict[str, tuple[int, int]] | None = None) -> bytes:
    """Returns an archive of files (content, mode), links, and folders (mode, owner)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        def add(name: str, mode: int, kind: bytes, content: bytes = b"", target: str = "", owner: int = 0) -> None:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.type, entry.mtime = mode, kind, EPOCH
            entry.size, entry.linkname, entry.uid, entry.gid = len(content), target, owner, owner
            archive.addfile(entry, io.BytesIO(content))
        parents = {str(parent) for name in [*files, *(links or {}), *(folders or {})]
                   for parent in pathlib.PurePosixPath(name).parents if str(parent) != "."}
        for name in sorted(parents | set(folders or {})):
            mode, owner = (folders or {}).get(name, (0o755, 0))
            add(name, mode, tarfile.DIRTYPE, owner=owner)
        for name, (content, mode) in sorted(files.items()):
            add(name, mode, tarfile.REGTYPE, content)
        for name, target in sorted((links or {}).items()):
            add(name, 0o777, tarfile.SYMTYPE, target=target)
    return buffer.getvalue()


def gzipped(content: bytes) -> bytes:
    """Returns gzip data without a time stamp, so that equal contents give equal bytes."""
    return gzip.compress(content, 9, mtime=0)


def documents() -> dict[str, bytes]:
    """Returns the licences and notices, which every package contains."""
    import notices

    files = {name: (ROOT / name).read_bytes() for name in ["LICENSE", "NOTICE"]}
    return {**files, "THIRD-PARTY-LICENSES": notices.texts().encode()}


def sha256(content: bytes) -> str:
    """Returns the checksum in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def write_sizes(out: pathlib.Path) -> None:
    """Writes sizes and checksums of the packages."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    lines = [f"{path.stat().st_size / 1e6:8.1f} MB  {path.relative_to(out)}\n" for path in files
             if path.suffix in {".whl", ".tgz", ".deb", ".gz", ".tar", ".jar", ".zip"}]
    (out / "sizes.txt").write_text("".join(lines))
    sums = [f"{sha256(path.read_bytes())}  {path.relative_to(out)}\n" for path in files]
    (out / "checksums.txt").write_text("".join(sums))


def write_json(path: pathlib.Path, content: object) -> None:
    """Writes indented JSON."""
    path.write_text(json.dumps(content, indent=2) + "\n")
