"""Build the distribution in dist/: wheels, an sdist and .debs (`make dist`); print the size of each.

The wheel contains the instrument, the units of systemd, man pages and completion. Its tag is manylinux, because the
binary is that of scripts/static.sh, which needs no library (another one: SOJOURN_BINARY). If scripts/arm64.sh is ready,
a second wheel is for arm64. The .debs are in scripts/debian.py. Nothing is installed, and nothing outside build/, dist/
(or the folder of --out), cargo's target/ and further instruments in .venv/bin is written. One runs at a time: another
waits.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import sojourn
from scripts import debian, make_manual

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
ARM64 = ROOT / "scripts/arm64.sh"


def main(argv: list[str] | None = None) -> int:
    """Build everything anew."""
    parser = argparse.ArgumentParser(description="Builds wheels, an sdist and .debs.")
    parser.add_argument("--out", type=Path, default=DIST, help="into this folder, new or empty, in place of dist/")
    parser.add_argument("--no-deb", action="store_true", help="no .debs")
    parser.add_argument("--no-arm64", action="store_true", help="no wheel for arm64")
    asked = parser.parse_args(argv)
    out = asked.out.resolve()
    if out != DIST and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        print(f"dist: {asked.out} is no empty folder: name a new one, or remove it", file=sys.stderr)
        return 2
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build/dist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if out == DIST:
            shutil.rmtree(DIST, ignore_errors=True)
        make(out, with_deb=not asked.no_deb, with_arm64=not asked.no_arm64)
    for path in sorted(out.iterdir()):
        print(f"{os.path.relpath(path)}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def make(out: Path, *, with_deb: bool, with_arm64: bool) -> None:
    """Build all files in a folder."""
    make_manual.main()
    build(out, "-t", "wheel", "-t", "sdist", SOJOURN_BINARY=binary())
    [wheel] = out.glob("*.whl")
    if with_deb:
        for python in debian.PYTHONS:
            debian.build(wheel, out, sojourn.__version__, python)
    if with_arm64:
        wheel_for_arm64(out)


def binary() -> str:
    """Return the instrument for the wheel: the named one, else a static one that is built now."""
    if named := os.environ.get("SOJOURN_BINARY"):
        return named
    subprocess.run([ROOT / "scripts/static.sh"], cwd=ROOT, check=True)
    return ".venv/bin/sojourn-instrument-static"


def build(out: Path, *words: str, **variables: str) -> None:
    """Run hatchling's build into a folder."""
    argv = [sys.executable, "-m", "hatchling", "build", *words, "-d", str(out)]
    subprocess.run(argv, cwd=ROOT, check=True, env=os.environ | variables)


def wheel_for_arm64(out: Path) -> None:
    """Build the wheel with the instrument for arm64, if nothing must be downloaded for it."""
    if subprocess.run([ARM64, "ready"], check=False, capture_output=True).returncode != 0:
        print("no wheel for arm64: `make arm64` fetches what compiles for it, then again")
        return
    subprocess.run([ARM64, "build"], check=True)
    build(out, "-t", "wheel", SOJOURN_BINARY=".venv/bin/sojourn-instrument-aarch64")


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
