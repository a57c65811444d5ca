"""OCI images from scratch, written directly: program, C library, a user, a volume, a health check.

An image's archive is an OCI layout and also has the format of `docker save`. `docker load`, `podman load` and
skopeo accept it. The C library comes from the building machine, which must have the image's processor. For
other processors use packaging/image/Containerfile.
"""

from __future__ import annotations

import json
import pathlib
import platform as machine
import re
import subprocess

import common

PASSWD = "root:x:0:0:root:/:/usr/sbin/nologin\nvellum:x:999:999:Vellum:/data/db:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nvellum:x:999:\n"
USER = 999

# The folder for scripts in MongoDB's images.
SCRIPTS = "/docker-entrypoint-initdb.d"

# As in packaging/image/Containerfile.
CONFIG = {
    "User": "999:999",
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "VELLUM_BIND=0.0.0.0", "VELLUM_DATA=/data/db", f"VELLUM_INIT_SCRIPTS={SCRIPTS}"],
    "Entrypoint": ["vellum"],
    "ExposedPorts": {"27017/tcp": {}},
    "Volumes": {"/data/db": {}},
    "WorkingDir": "/",
    "StopSignal": "SIGTERM",
    "Healthcheck": {"Test": ["CMD", "/usr/bin/vellum", "ping", "--quiet"], "Interval": 10_000_000_000,
                    "Timeout": 5_000_000_000, "StartPeriod": 60_000_000_000, "Retries": 3},
    "Labels": {
        "org.opencontainers.image.title": "vellum",
        "org.opencontainers.image.description": common.SUMMARY,
        "org.opencontainers.image.licenses": common.LICENCE,
        "org.opencontainers.image.source": common.HOMEPAGE,
    },
}

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
IMAGE = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes an image for each platform whose C library is available."""
    for platform, folder in programs.items():
        here = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.machine())
        if not platform.oci:
            continue
        if platform.oci != here:
            print(f"   no image for {platform.name} here: packaging/image/Containerfile makes it")
            continue
        (out / f"vellum-image-{common.version()}-{platform.oci}.tar").write_bytes(archive(platform, folder))


def libraries(program: pathlib.Path) -> dict[str, bytes]:
    """Returns the C library's files that the program needs, with the loader, by path."""
    text = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    paths = re.findall(r"(/\S+)", text)
    if not paths:
        raise SystemExit(f"ldd does not list the libraries of {program}:\n{text}")
    return {path.lstrip("/"): pathlib.Path(path).resolve().read_bytes() for path in paths}


def archive(platform: common.Platform, folder: pathlib.Path) -> bytes:
    """Returns the archive of one image."""
    program = common.server(platform, folder)
    files = {path: (content, 0o755) for path, content in libraries(program).items()}
    files["usr/bin/vellum"] = (program.read_bytes(), 0o755)
    files["etc/passwd"] = (PASSWD.encode(), 0o644)
    files["etc/group"] = (GROUP.encode(), 0o644)
    files.update({f"usr/share/doc/vellum/{name}": (text, 0o644) for name, text in common.documents().items()})
    folders = {"data/db": (0o700, USER), "tmp": (0o1777, 0), SCRIPTS.lstrip("/"): (0o755, 0)}
    layer = common.tar(files, {"usr/bin/mongod": "vellum"}, folders)
    packed = common.gzipped(layer)
    tag = f"vellum:{common.version()}"
    config = as_json({
        "created": "2026-01-01T00:00:00Z", "architecture": platform.oci, "os": "linux", "config": CONFIG,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{common.sha256(layer)}"]},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "packaging/build"}],
    })
    manifest = as_json({"schemaVersion": 2, "mediaType": MANIFEST, "config": described(IMAGE, config),
                        "layers": [described(LAYER, packed)]})
    annotations = {"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": f"docker.io/library/{tag}"}
    index = as_json({"schemaVersion": 2, "manifests": [{**described(MANIFEST, manifest), "annotations": annotations}]})
    legacy = as_json([{"Config": blob(config), "RepoTags": [tag], "Layers": [blob(packed)]}])
    members = {"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}), "index.json": index, "manifest.json": legacy}
    members.update({blob(content): content for content in [config, manifest, packed]})
    return common.tar({name: (content, 0o644) for name, content in members.items()})


def as_json(content: object) -> bytes:
    """Serializes to stable bytes."""
    return json.dumps(content, sort_keys=True).encode()


def described(kind: str, content: bytes) -> dict[str, object]:
    """Returns the descriptor of a blob."""
    return {"mediaType": kind, "digest": f"sha256:{common.sha256(content)}", "size": len(content)}


def blob(content: bytes) -> str:
    """Returns a blob's path in the layout."""
    return f"blobs/sha256/{common.sha256(content)}"
