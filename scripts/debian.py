"""Build the .deb: programs, units, man pages, completion, and the Python libraries that Debian lacks, in a folder.

`sojourn` runs in a virtual environment below /usr/lib/sojourn, made of the wheel and of the versions in uv.lock, for
one version of Python, a distribution's. postinst makes the group `sojourn` and a copy of the instrument with
capabilities that only its members may execute (docs/reference/rights.md); prerm removes the copy, and stops and
disables the services that somebody has started or enabled. The package starts and enables none.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".venv/bin/uv"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PYTHONS = ("3.11", "3.12")
"""The Python versions of Debian 12 (and beside Ubuntu 22.04's own), and of Ubuntu 24.04.

There is a package for each, because libraries have compiled parts; the first one's name does not mention it.
"""
HELPER = "/usr/libexec/sojourn/sojourn-instrument"
STATE = "/var/lib/sojourn"
"""Where the package records that the group is its own."""

PACKAGES = {"libelf.so.1": "libelf1 | libelf1t64", "libz.so.1": "zlib1g", "libgcc_s.so.1": "libgcc-s1"}
"""Debian's package of each library that the instrument may need; libc6 is added with a version."""

START = f"""#!/usr/lib/sojourn/bin/python3 -I
# Who is in the group `sojourn` runs the instrument that has capabilities; anybody else the plain one.
import os
import sys

if os.geteuid() != 0 and os.access("{HELPER}", os.X_OK):
    os.environ.setdefault("SOJOURN_INSTRUMENT", "{HELPER}")
sys.argv[0] = "sojourn"
from sojourn.cli import main

main()
"""

POSTINST = f"""#!/bin/sh
set -e
case "$1" in configure | abort-upgrade | abort-remove | abort-deconfigure) # prerm took the copy away
    if ! getent group sojourn >/dev/null; then
        groupadd --system sojourn
        install -d {STATE} && touch {STATE}/made-group
    fi
    install -D -o root -g sojourn -m 0750 /usr/bin/sojourn-instrument {HELPER}
    setcap cap_net_raw,cap_sys_nice,cap_ipc_lock=ep {HELPER} ||
        echo "sojourn: this file system keeps no capabilities: only root can measure" >&2
    if [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi
    ;;
esac
"""

PRERM = f"""#!/bin/sh
set -e
if [ "$1" = remove ]; then # while an upgrade goes on they run on, with the program that they have
    if [ -d /run/systemd/system ]; then
        systemctl stop sojourn-responder.service sojourn-tcplog.service 'sojourn-emulator@*.service' || true
    fi
    if command -v systemctl >/dev/null; then
        systemctl --quiet disable sojourn-responder.service sojourn-tcplog.service sojourn-emulator@.service || true
    fi
fi
rm -f {HELPER}
rmdir --ignore-fail-on-non-empty {Path(HELPER).parent} 2>/dev/null || true
"""

POSTRM = f"""#!/bin/sh
set -e
case "$1" in remove | purge) rm -rf /usr/lib/sojourn ;; esac # what Python has compiled there
if [ "$1" = purge ] && [ -e {STATE}/made-group ]; then # a group that somebody else made stays
    groupdel sojourn || true
    rm -f {STATE}/made-group
    rmdir --ignore-fail-on-non-empty {STATE} # instruments that controllers of real hosts have copied are theirs
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi
"""

CONTROL = """\
Package: sojourn
Version: {version}
Architecture: {architecture}
Maintainer: The Sojourn developers <sojourn@localhost>
Installed-Size: {size}
Depends: {depends}
Recommends: iputils-ping, nftables, tcpdump
Section: net
Priority: optional
Description: measures what a box in the path does to packets
 Latency, loss, rate and TCP of a device under test, with intervals; an
 emulator of paths that proves how exact it is; a log of TCP's own state at
 every packet. Members of the group sojourn may measure without being root.
"""


def build(wheel: Path, into: Path, version: str, python: str = PYTHONS[0]) -> Path:
    """Build the package of a wheel, for a version of Python."""
    tree = ROOT / "build/deb"
    shutil.rmtree(tree, ignore_errors=True)
    unpack(wheel, tree)
    libraries(wheel, tree / "usr/lib/sojourn", python)
    documents(tree)
    version += "" if python == PYTHONS[0] else f"+python{python}"
    control(tree, version, python)
    package = into / f"sojourn_{version}_{architecture()}.deb"
    argv = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", str(tree), str(package)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return package


def architecture() -> str:
    """Return Debian's name of this machine's architecture."""
    return ARCHITECTURES[platform.machine()]


def unpack(wheel: Path, tree: Path) -> None:
    """Unpack the wheel's files outside Python's libraries: the instrument, units, man pages, completion."""
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            _, _, inside = name.partition(".data/")
            if inside.startswith("data/"):
                write(tree / "usr" / inside.removeprefix("data/"), packed.read(name), 0o644)
            elif inside == "scripts/sojourn-instrument":
                write(tree / "usr/bin/sojourn-instrument", packed.read(name), 0o755)
    write(tree / "usr/bin/sojourn", START.encode(), 0o755)
    for page in (tree / "usr/share/man/man1").glob("*.1"):
        write(page.with_suffix(".1.gz"), gzip.compress(page.read_bytes(), mtime=0), 0o644)
        page.unlink()


def libraries(wheel: Path, home: Path, python: str) -> None:
    """The virtual environment: the wheel, and what it needs as locked, by hash. That Python need not be here."""
    site = home / f"lib/python{python}/site-packages"
    needs = ROOT / "build/needs.txt"
    needs.write_text(locked(), encoding="utf-8")
    install = [str(UV), "pip", "install", "--quiet", "--python", sys.executable, "--target", str(site)]
    install += ["--link-mode", "copy", "--no-deps", "--python-version", python, "--only-binary", ":all:"]
    # The wheel was built a moment ago, and no lock has its hash.
    for what in (["--require-hashes", "-r", str(needs)], [str(wheel)]):
        subprocess.run([*install, *what], cwd=ROOT, check=True)
    for unneeded in (site / "bin", site / "lib", site / "share", site / "sojourn-instrument"):
        shutil.rmtree(unneeded, ignore_errors=True)
    for tests in [path for path in site.rglob("tests") if path.is_dir() and (path / "__init__.py").exists()]:
        shutil.rmtree(tests, ignore_errors=True)
    for cache in list(site.rglob("__pycache__")):
        shutil.rmtree(cache, ignore_errors=True)
    bin_folder = home / "bin"
    bin_folder.mkdir(parents=True)
    for name, target in (
        ("python3", f"/usr/bin/python{python}"),
        ("sojourn-instrument", "/usr/bin/sojourn-instrument"),
    ):
        (bin_folder / name).symlink_to(target)
    write(home / "pyvenv.cfg", f"home = /usr/bin\nversion = {python}\n".encode(), 0o644)


def locked() -> str:
    """Return what `sojourn` needs to run, as locked, with hashes; of the groups for development none."""
    asked = ["export", "--frozen", "--no-default-groups", "--no-emit-project", "--quiet"]
    return subprocess.run([UV, *asked], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def documents(tree: Path) -> None:
    """Write licence, changes and the guide's programs of boxes at their places in Debian."""
    licences = "\n".join((ROOT / name).read_text() for name in ("LICENSE", "LICENSE-MIT", "LICENSE-APACHE"))
    write(tree / "usr/share/doc/sojourn/copyright", licences.encode(), 0o644)
    changes = gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0)
    write(tree / "usr/share/doc/sojourn/changelog.gz", changes, 0o644)
    for example in (ROOT / "docs/guide/examples").iterdir():
        mode = 0o755 if example.stat().st_mode & 0o100 else 0o644
        write(tree / "usr/share/doc/sojourn/examples" / example.name, example.read_bytes(), mode)


def control(tree: Path, version: str, python: str) -> None:
    """Write the control files of dpkg: description and dependences, checksums, and the maintainer scripts."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in files) // 1024 + 1
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    names = [str(path.relative_to(tree)) for path in files]
    sums = "".join(f"{hashlib.md5((tree / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    folder = tree / "DEBIAN"
    depends = ", ".join([*needed(tree / "usr/bin/sojourn-instrument"), f"python{python}", *TOOLS])
    text = CONTROL.format(version=version, architecture=architecture(), size=size, depends=depends)
    write(folder / "control", text.encode(), 0o644)
    write(folder / "md5sums", sums.encode(), 0o644)
    for name, script in (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)):
        write(folder / name, script.encode(), 0o755)


TOOLS = ("iproute2", "ethtool", "util-linux", "mount", "passwd", "libcap2-bin")


def needed(binary: Path) -> list[str]:
    """Return the packages of the libraries that a binary needs."""
    libraries, version = libraries_of(binary)
    return ([f"libc6 (>= {version})"] if version else []) + sorted(
        PACKAGES[one] for one in libraries if one in PACKAGES
    )


def libraries_of(binary: Path) -> tuple[list[str], str]:
    """Return a binary's shared libraries, and the newest version of the C library that it needs."""
    shown = subprocess.run(["objdump", "-p", binary], check=True, capture_output=True, text=True).stdout
    versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", shown)
    newest = max(((int(major), int(minor)) for major, minor in versions), default=None)
    return re.findall(r"NEEDED\s+(\S+)", shown), f"{newest[0]}.{newest[1]}" if newest else ""


def write(path: Path, octets: bytes, mode: int) -> None:
    """Write a file with its mode, and make the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(octets)
    path.chmod(mode)
