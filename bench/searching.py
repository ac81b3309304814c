"""The time of a search's trial beyond its traffic, and the time for the report of a short run.

The first is from the log of `sojourn run rfc2544 --quick`; the second from an archived run of the demo's size.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.analysis import cost
from bench.compare import Row, Target, What, alone
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable

ARCHIVED = Path(__file__).parents[1] / "tests/golden/bridge-latency-real.tar.xz"
SOJOURN = str(Path(sys.executable).with_name("sojourn"))
SETS = {"bed.devices": "bridge", "search.tests": "throughput", "stream.frame_bytes": "64", "search.repetitions": "1",
        "bed.sessions": "1"}  # fmt: skip
LONGEST_SECONDS = 300
INVALID = 4

Log = list[dict[str, Any]]


def rows(repetitions: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """The lines of the table."""
    with tarfile.open(ARCHIVED) as archive:
        archive.extractall(scratch, filter="data")
    run, beside, reports = scratch / ARCHIVED.name.removesuffix(".tar.xz"), [], []
    for number in range(1, repetitions + 1):
        tell(f"searching: repetition {number}/{repetitions}")
        beside.append(trial_of(searched(scratch / f"search-{number}")))
        reports.append((cost([SOJOURN, "report", str(run)]).seconds, cost([SOJOURN, "--version"]).seconds))
    return [
        alone(
            What("a trial of a search", "its traffic", "time beside its traffic", "s"),
            beside,
            Target("at most", 0.02),
        ),
        alone(
            What("the report of a run as the demo's", "`sojourn --version`", "wall time", "s"),
            reports,
            Target("at most", 4),
        ),
    ]


def searched(out: Path) -> Log:
    """Return the log of one search for the throughput."""
    sets = [word for key, value in SETS.items() for word in ("--set", f"{key}={value}")]
    argv = [SOJOURN, "run", "rfc2544", "--quick", *sets, "--out", str(out), "--no-report", "--no-history"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode not in (0, INVALID):
        raise MachineError(f"the search failed: {done.stderr.strip()[-300:]}")
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def trial_of(log: Log) -> tuple[float, float]:
    """Return the seconds of the median trial without its traffic, and of its traffic.

    A trial lasts from the end of the previous one in the same search to its own end.
    """
    steps = [one for one in log if one["event"] == "search-step" and one.get("duration_s") is not None]
    found = [
        ((later["monotonic_raw_ns"] - earlier["monotonic_raw_ns"]) / 1e9 - later["duration_s"], later["duration_s"])
        for earlier, later in pairwise(steps)
        if earlier["search"] == later["search"] and later["block"] == earlier["block"] + 1
    ]
    if not found:
        raise MachineError("the search had no two trials one after the other")
    return median(own for own, _ in found), median(traffic for _, traffic in found)
