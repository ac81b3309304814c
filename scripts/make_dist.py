"""Builds what is handed out, in dist/: wheels, an sdist and .debs (`make dist`); says how large each is.

The wheel carries the instrument, the units of systemd, man pages and completion. Its tag is what the binary needs:
manylinux, for the binary is that of scripts/static.sh, which needs no library (another: SOJOURN_BINARY). Where
scripts/arm64.sh has what it takes, a second wheel is for arm64. The .debs are in scripts/debian.py. Nothing is
installed, and nothing outside build/, dist/, cargo's target/ and further instruments in .venv/bin is written.
"""

from __future__ import annotations

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


def main() -> int:
    """Everything anew."""
    shutil.rmtree(DIST, ignore_errors=True)
    make_manual.main()
    build("-t", "wheel", "-t", "sdist", SOJOURN_BINARY=binary())
    [wheel] = DIST.glob("*.whl")
    if "--no-deb" not in sys.argv[1:]:
        for python in debian.PYTHONS:
            debian.build(wheel, DIST, sojourn.__version__, python)
    if "--no-arm64" not in sys.argv[1:]:
        wheel_for_arm64()
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def binary() -> str:
    """The instrument for the wheel: the one that is named, else one that needs no library, made now."""
    if named := os.environ.get("SOJOURN_BINARY"):
        return named
    subprocess.run([ROOT / "scripts/static.sh"], cwd=ROOT, check=True)
    return ".venv/bin/sojourn-instrument-static"


def build(*words: str, **variables: str) -> None:
    """What hatchling builds, in dist/."""
    argv = [sys.executable, "-m", "hatchling", "build", *words, "-d", str(DIST)]
    subprocess.run(argv, cwd=ROOT, check=True, env=os.environ | variables)


def wheel_for_arm64() -> None:
    """The wheel with the instrument for arm64, where nothing has to be fetched for that."""
    if subprocess.run([ARM64, "ready"], check=False, capture_output=True).returncode != 0:
        print("no wheel for arm64: `make arm64` fetches what compiles for it, then again")
        return
    subprocess.run([ARM64, "build"], check=True)
    build("-t", "wheel", SOJOURN_BINARY=".venv/bin/sojourn-instrument-aarch64")


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
