"""Where suites leave what they measured, for the proof page: a file for each figure, with the commit that it is of.

`SOJOURN_PROOF` names the folder of figures; where it is not set, nothing is written, so that `make test` leaves the
figures of the last proof alone. Judges nothing and lays nothing out: scripts/write_proof.py and scripts/proof_page.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "SOJOURN_PROOF"
SUITE = "SOJOURN_SUITE"
"""The variable that names the suite that runs (scripts/parts.sh)."""
SOAK = "soak"
"""The suite of `make soak`, which is none of `make proof`'s: its figures have their own commit and date."""
WRITTEN = ("README.md", "docs/reference/proof.md", "docs/reference/proof.json")
"""The files that scripts/write_proof.py writes; scripts/parts.sh excludes them from the commit as well."""

Kind = Literal["coverage", "truths", "alarms", "kills", "power", "soak", "bare", "packages"]
KINDS: dict[Kind, dict[str, str]] = {
    "coverage": {"held": "intervals that hold the truth", "of": "intervals"},
    "truths": {"held": "intervals that hold the truth", "of": "intervals"},
    "alarms": {"alarms": "alarms", "of": "series or runs in which there is nothing to find"},
    "kills": {"kills": "processes that were killed, of which nothing was left"},
    "power": {"cuts": "losses of power that the records survived"},
    "soak": {
        "seconds": "at load",
        "packets": "packets accounted for",
        "rise_bytes": "by which the memory rose",
        "bytes_per_hour": "by which it rises in an hour",
        "half_bytes_per_hour": "half the 95 % interval of that",
    },
    "bare": {"seconds": "from nothing to a verdict"},
    "packages": {
        "file_bytes": "of the file",
        "installed_bytes": "of what it installs, without the distribution's packages",
        "help_seconds": "from the start of `sojourn --help` to its end, median of 11",
    },
}
"""The numbers that a figure of each kind has, with what each number counts or measures."""


def record(kind: Kind, what: str, test: str, numbers: dict[str, float]) -> None:
    """Write a figure to its file; if a test runs again in the same suite, its last figure replaces the earlier one."""
    if FOLDER not in os.environ:
        return
    if numbers.keys() != KINDS[kind].keys():
        raise ValueError(f"a figure of the kind {kind} has {', '.join(KINDS[kind])}, not {', '.join(numbers)}")
    folder = Path(os.environ[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    plain = {name: int(value) if float(value).is_integer() else float(value) for name, value in numbers.items()}
    suite = os.environ.get(SUITE, "")
    when = {"commit": commit(ROOT), "date": today()}
    told = {"kind": kind, "what": what, "test": test, "suite": suite, **when, "numbers": plain}
    name = hashlib.sha256(f"{suite} {test} {kind} {what}".encode()).hexdigest()[:16]
    (folder / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(UTC).date().isoformat()


@cache
def commit(folder: Path) -> str:
    """Return the commit of a checkout, with `-dirty` if files differ from it; empty if git knows none.

    Files that the proof itself writes are ignored: the page, its facts and README.
    """
    git = ["git", "-C", str(folder)]
    done = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    argv = [*git, "diff", "--quiet", "HEAD", "--", ".", *(f":(top,exclude){one}" for one in WRITTEN)]
    differs = subprocess.run(argv, capture_output=True, check=False).returncode == 1
    return f"{done.stdout.strip()}{'-dirty' if differs else ''}"
