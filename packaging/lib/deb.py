"""The Debian package: program, lab, man pages, completions, a systemd unit with its own user."""

from __future__ import annotations

import pathlib
import tempfile

import common
import tarball

SOURCE = common.ROOT / "packaging" / "deb"

CONTROL = """Package: vellum
Version: {version}
Architecture: {architecture}
Maintainer: The Vellum maintainers <maintainers@vellum.invalid>
Installed-Size: {kilobytes}
Depends: libc6 (>= 2.17)
Recommends: adduser | systemd-standalone-sysusers | systemd
Section: database
Priority: optional
Homepage: {homepage}
Description: MongoDB-compatible document database in one small binary
 Vellum speaks the MongoDB wire protocol and keeps documents in memory or on
 disk. Durability levels: none, relaxed, journaled.
 .
 The installation does not start the service. Configure it in
 /etc/vellum/vellum.toml, and run `systemctl enable --now vellum`.
"""


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes a package for each Debian architecture."""
    for platform, folder in programs.items():
        if platform.debian:
            build(out, platform, folder)


def build(out: pathlib.Path, platform: common.Platform, folder: pathlib.Path) -> None:
    """Creates the tree and runs dpkg-deb."""
    files = {f"usr/{name}": file for name, file in tarball.contents(platform, folder).items()}
    files["lib/systemd/system/vellum.service"] = ((SOURCE / "vellum.service").read_bytes(), 0o644)
    files["usr/lib/sysusers.d/vellum.conf"] = ((SOURCE / "sysusers.conf").read_bytes(), 0o644)
    files["etc/vellum/vellum.toml"] = ((SOURCE / "vellum.toml").read_bytes(), 0o644)
    documents = common.documents()
    files["usr/share/doc/vellum/copyright"] = (documents["NOTICE"] + b"\n\n" + documents["LICENSE"], 0o644)
    control = CONTROL.format(
        version=common.version(), architecture=platform.debian, homepage=common.HOMEPAGE,
        kilobytes=sum(len(content) for content, _ in files.values()) // 1024)
    files["DEBIAN/control"] = (control.encode(), 0o644)
    files["DEBIAN/conffiles"] = (b"/etc/vellum/vellum.toml\n", 0o644)
    for script in ["postinst", "prerm", "postrm"]:
        files[f"DEBIAN/{script}"] = ((SOURCE / script).read_bytes(), 0o755)
    with tempfile.TemporaryDirectory() as tree:
        for name, (content, mode) in files.items():
            path = pathlib.Path(tree, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(mode)
        pathlib.Path(tree).chmod(0o755)
        name = f"vellum_{common.version()}_{platform.debian}.deb"
        common.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, str(out / name)],
                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SOURCE_DATE_EPOCH": str(common.EPOCH)})
