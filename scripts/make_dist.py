"""Builds what is handed out, in dist/: a wheel, an sdist and .debs (`make dist`); says how large each is.

The wheel carries the instrument, the units of systemd, man pages and completion. Its tag is what the binary needs: a
manylinux one where that is no more than a C library, as with the one of `make static`, which needs none
(SOJOURN_BINARY=.venv/bin/sojourn-instrument-static); else this machine's. The .debs are in scripts/debian.py. Nothing
is installed, and nothing outside build/ and dist/ is written.
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


def main() -> int:
    """Everything anew."""
    shutil.rmtree(DIST, ignore_errors=True)
    make_manual.main()
    targets = ["-t", "wheel", "-t", "sdist", "-d", str(DIST)]
    subprocess.run([sys.executable, "-m", "hatchling", "build", *targets], cwd=ROOT, check=True)
    [wheel] = DIST.glob("*.whl")
    if "--no-deb" not in sys.argv[1:]:
        for python in debian.PYTHONS:
            debian.build(wheel, DIST, sojourn.__version__, python)
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
