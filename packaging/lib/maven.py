"""A Maven repository: vellum-server with the programs, and vellum-junit, which depends on it."""

from __future__ import annotations

import hashlib
import pathlib
import re
import zipfile

import common

SOURCE = common.ROOT / "clients" / "java"

POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>vellum-server</artifactId>
  <version>{version}</version>
  <description>The program of Vellum, for the class path</description>
  <url>{homepage}</url>
  <licenses><license><name>{licence}</name></license></licenses>
</project>
"""

DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId>
      <artifactId>vellum-server</artifactId>
      <version>{version}</version>
      <scope>runtime</scope>
    </dependency>
  </dependencies>

  <build>"""


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes both artifacts in the layout of a repository. vellum-junit gets a dependency on vellum-server."""
    version = common.version()
    pom = (SOURCE / "pom.xml").read_text()
    found = re.search(r"<groupId>(.*?)</groupId>", pom)
    assert found, "pom.xml has no group"
    group = found[1]
    jar = out / "server.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name: str, content: bytes) -> None:
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
        add("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nImplementation-Version: {version}\n\n".encode())
        for name, content in common.documents().items():
            add(f"META-INF/{name}", content)
        for platform, folder in programs.items():
            program = common.server(platform, folder)
            add(f"vellum/program/{platform.name}/{program.name}", program.read_bytes())
    server_pom = POM.format(group=group, version=version, homepage=common.HOMEPAGE, licence=common.LICENCE)
    write_artifact(out, group, "vellum-server", jar.read_bytes(), server_pom)
    jar.unlink()
    common.run(["mvn", "-B", "-ntp", "-q", "-DskipTests", "package"], SOURCE)
    junit = (SOURCE / "target" / f"vellum-junit-{version}.jar").read_bytes()
    with_server = pom.replace("  </dependencies>\n\n  <build>", DEPENDENCY.format(group=group, version=version), 1)
    assert with_server != pom, "pom.xml is not as expected"
    write_artifact(out, group, "vellum-junit", junit, with_server)


def write_artifact(out: pathlib.Path, group: str, name: str, jar: bytes, pom: str) -> None:
    """Writes one artifact with its checksums."""
    folder = out.joinpath(*group.split("."), name, common.version())
    folder.mkdir(parents=True)
    for suffix, content in [("jar", jar), ("pom", pom.encode())]:
        path = folder / f"{name}-{common.version()}.{suffix}"
        path.write_bytes(content)
        pathlib.Path(f"{path}.sha1").write_text(hashlib.sha1(content).hexdigest())
