"""Makes a container image of the .deb in dist/ (`make image`): Debian 12, what the package needs, and the package.

The file is an OCI image layout in a tar archive, which podman, docker (25 and later), skopeo and containerd load. It is
made without a daemon: mmdebstrap makes the root file system, and the layout is three JSON files beside it. The image
runs as root of its container; the rights that it needs there stand in its label `sojourn.capabilities`. Nothing is
installed on this machine, and nothing outside build/ and dist/ (or the folder of --dist) is written.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sojourn

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build/image"
SUITE = "bookworm"
"""The release whose Python the package is built for."""

CAPABILITIES = ("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN")
"""The capabilities that a study needs beyond docker's defaults: links and addresses, raw sockets, namespaces."""

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CHUNK_BYTES = 1 << 20


def main(argv: list[str] | None = None) -> int:
    """Build the image of the package in dist/."""
    parser = argparse.ArgumentParser(description="Makes a container image of the .deb in dist/.")
    parser.add_argument("--dist", type=Path, default=DIST, help="the folder of the .deb and of the image")
    dist = parser.parse_args(argv).dist.resolve()
    packages = [*dist.glob(f"sojourn_{sojourn.__version__}_*.deb")]
    if not packages:
        wanted = f"{os.path.relpath(dist)}/sojourn_{sojourn.__version__}_*.deb"
        print(f"image: there is no {wanted}: run make dist", file=sys.stderr)
        return 2
    if shutil.which("mmdebstrap") is None:
        print("image: mmdebstrap is not installed: apt install mmdebstrap", file=sys.stderr)
        return 3
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    made = image(packages[-1], dist / f"sojourn-{sojourn.__version__}.oci.tar")
    shutil.rmtree(WORK)
    print(f"{os.path.relpath(made)}: {made.stat().st_size / 1e6:.1f} MB")
    return 0


def image(package: Path, into: Path) -> Path:
    """Build one image with one layer."""
    layout = WORK / "layout"
    (layout / "blobs/sha256").mkdir(parents=True)
    root = WORK / "root.tar"
    system(package, root)
    layer, plain = packed(root, layout)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = {
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/sojourn"],
            "Cmd": ["run", "bridge-latency", "--quick", "--out", "/tmp/run"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
            "WorkingDir": "/root",
            "Labels": labels(),
        },
        "rootfs": {"type": "layers", "diff_ids": [plain]},
    }
    described = blob(layout, json.dumps(config).encode(), CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": [layer]}
    name = f"sojourn:{sojourn.__version__}"
    names = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": f"docker.io/library/{name}"}
    first = blob(layout, json.dumps(manifest).encode(), MANIFEST) | {"annotations": names}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [first]}))
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    with tarfile.open(into, "w") as archive:
        for path in sorted(layout.rglob("*")):
            archive.add(path, str(path.relative_to(layout)), recursive=False)
    return into


def labels() -> dict[str, str]:
    """Return the labels of the image."""
    return {
        "org.opencontainers.image.title": "sojourn",
        "org.opencontainers.image.version": sojourn.__version__,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.description": "measures what a box in the path does to packets",
        "sojourn.capabilities": " ".join(CAPABILITIES),
    }


def system(package: Path, into: Path) -> None:
    """Build the root file system: Debian, and the package installed by apt; without package lists and archives."""
    inside = f"/tmp/{package.name}"
    install = "apt-get install -qq -y --no-install-recommends"
    argv = [
        "mmdebstrap", "--variant=minbase", "--quiet",
        f"--customize-hook=upload {package} {inside}",
        f'--customize-hook=chroot "$1" {install} {inside}',
        f'--customize-hook=rm -rf "$1"{inside}',
        SUITE, str(into),
    ]  # fmt: skip
    subprocess.run(argv, check=True)


def packed(root: Path, layout: Path) -> tuple[dict[str, Any], str]:
    """Return the layer's descriptor, and the digest of its uncompressed content."""
    plain, there = hashlib.sha256(), WORK / "layer.tar.gz"
    with root.open("rb") as read, gzip.GzipFile(there, "wb", compresslevel=5, mtime=0) as write:
        while chunk := read.read(CHUNK_BYTES):
            plain.update(chunk)
            write.write(chunk)
    root.unlink()
    with there.open("rb") as read:
        digest = hashlib.file_digest(read, "sha256").hexdigest()
    size = there.stat().st_size
    there.rename(layout / "blobs/sha256" / digest)
    return {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": size}, f"sha256:{plain.hexdigest()}"


def blob(layout: Path, octets: bytes, kind: str) -> dict[str, Any]:
    """Write octets under their digest; return their descriptor."""
    digest = hashlib.sha256(octets).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(octets)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(octets)}


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
