"""The programs: compiled with the profile `dist`, linked by zig against an old glibc."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import common

# The oldest version that Rust's standard library supports, from 2012: CentOS 7 has it.
GLIBC = "2.17"
REQUIREMENTS = ["ziglang==0.15.2", "cargo-zigbuild==0.24.0"]

# ARM kernels have pages of 4, 16 or 64 KiB. jemalloc fails to start if pages are larger than at its build.
LG_PAGE_ARM = "16"

# Limit of the server's size, which the documents name. The lab has no limit.
SERVER_MEGABYTES_MAX = 17


def programs(platform: common.Platform) -> pathlib.Path:
    """Compiles server and lab for a platform. Returns the folder with both."""
    if not platform.name.startswith("linux"):
        raise SystemExit(f"{platform.name} is compiled on a machine of this platform: see .github/workflows/release.yml")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", common.ROOT / "target"))
    environment = tools()
    if "arm64" in platform.name:
        environment["JEMALLOC_SYS_WITH_LG_PAGE"] = LG_PAGE_ARM
    add_target(platform.triple)
    for package in ["vellum", "lab"]:
        # Separately: a common build would unify the features of both.
        print(f"-- {package} for {platform.name}", flush=True)
        command = ["cargo", "zigbuild", "--profile", "dist", "--package", package, "--bins",
                   "--target", f"{platform.triple}.{GLIBC}"]
        common.run(command, common.ROOT, environment)
    folder = target / platform.triple / "dist"
    check(common.server(platform, folder))
    return folder


def installs(platform: common.Platform) -> list[str]:
    """Returns the downloads needed to compile for a platform."""
    missing = []
    if not has_tools():
        missing.append(f"PyPI's {' and '.join(REQUIREMENTS)} into {common.CACHE / 'zig'} (400 MB)")
    if not has_target(platform.triple):
        missing.append(f"Rust's standard library for {platform.triple} (30 MB, rustup target add)")
    return missing


def has_tools() -> bool:
    """Returns True if zig and cargo-zigbuild are installed in these versions."""
    stamp = common.CACHE / "zig" / "ready"
    return stamp.exists() and stamp.read_text() == "\n".join(REQUIREMENTS)


def has_target(triple: str) -> bool:
    """Returns True if the compiler has the target's standard library."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], cwd=common.ROOT, capture_output=True, text=True, check=True)
    return (pathlib.Path(sysroot.stdout.strip()) / "lib" / "rustlib" / triple).exists()


def tools() -> dict[str, str]:
    """Returns an environment in which cargo finds zig."""
    home = common.CACHE / "zig"
    if not has_tools():
        shutil.rmtree(home, ignore_errors=True)
        common.run([sys.executable, "-m", "venv", str(home)])
        common.run([str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS])
        (home / "ready").write_text("\n".join(REQUIREMENTS))
    return {**os.environ, "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def add_target(triple: str) -> None:
    """Installs the target's standard library with rustup."""
    if not has_target(triple):
        common.run(["rustup", "target", "add", triple], common.ROOT)


def check(program: pathlib.Path) -> None:
    """Checks the size of a program, and that it needs only the C library in version GLIBC or older."""
    megabytes = program.stat().st_size / 1e6
    if megabytes > SERVER_MEGABYTES_MAX:
        raise SystemExit(f"{program} has {megabytes:.1f} MB, more than {SERVER_MEGABYTES_MAX}")
    needed, versions = needs(program)
    unexpected = [name for name in needed if not name.startswith(("libc.so", "libm.so", "libpthread.so", "libdl.so",
                                                               "librt.so", "libutil.so", "ld-linux"))]
    if unexpected:
        raise SystemExit(f"{program} needs {', '.join(unexpected)}")
    newer = [version for version in versions if tuple(map(int, version.split("."))) > tuple(map(int, GLIBC.split(".")))]
    if newer:
        raise SystemExit(f"{program} needs glibc {', '.join(newer)}")


def needs(program: pathlib.Path) -> tuple[list[str], list[str]]:
    """Returns the shared libraries of a program, and the versions of the glibc symbols that it uses."""
    text = subprocess.run(["objdump", "-p", str(program)], capture_output=True, text=True, check=False).stdout
    lines = [line.split() for line in text.splitlines()]
    needed = [words[1] for words in lines if len(words) == 2 and words[0] == "NEEDED"]
    versions = [word.removeprefix("GLIBC_") for words in lines for word in words if word.startswith("GLIBC_")]
    return needed, sorted(set(versions))
