"""The kernel bridge's throughput, searched ten times in one run: how far the answers spread, and over frame sizes.

The study does the work (`sojourn run rfc2544`); this only holds its figures to targets. A tester-limited answer is no
throughput of the bridge: it is shown, by its own name, and meets nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.compare import Row, Target
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable

REPETITIONS = 10
SIZES = (64, 512, 1518)
LONGEST_SECONDS = 900
INVALID = 4

Found = dict[str, Any]


def rows(device: str, tell: Callable[[str], None]) -> list[Row]:
    """Return the lines of the table."""
    tell(f"throughput of the {device}, {REPETITIONS} searches of {len(SIZES)} sizes")
    results = searched(device)
    lines = [line for size in SIZES for line in of_size(results, device, size)]
    return [*lines, never_rises(results, device)]


def searched(
    devices: str, sizes: tuple[int, ...] = SIZES, repetitions: int = REPETITIONS, sessions: int = 3, seed: int = 2544
) -> list[Found]:
    """Return the results of one run of the study, over the given number of beds; the seed draws the searches' order."""
    asked = {
        "bed.devices": devices,
        "search.tests": "throughput",
        "stream.frame_bytes": ",".join(map(str, sizes)),
        "search.repetitions": str(repetitions),
        "bed.sessions": str(sessions),
        "search.width": "0.005",
        "search.at_most": "600s",
        "trials.seed": str(seed),
    }
    sets = [word for key, value in asked.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as scratch:
        out = ["--out", str(Path(scratch) / "run"), "--json", "--no-report"]
        argv = [sys.executable, "-c", "from sojourn.cli import main; main()", "run", "rfc2544", "--quick", *sets, *out]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode not in (0, INVALID):
        raise MachineError(f"the search of the throughput failed: {done.stderr.strip()[-300:]}")
    found: list[Found] = json.loads(done.stdout.splitlines()[-1])["results"]
    return found


def of_size(results: list[Found], device: str, size: int) -> list[Row]:
    """Return NDR and PDR of one frame size, and the spread of ten searches of the PDR."""
    task = f"throughput of {size}-byte frames"
    spread = pick(results, device, size, "pdr", "spread")
    lines = []
    for quantity, name in (("ndr", "zero-loss rate (NDR)"), ("pdr", "rate at 0.5 % loss (PDR)")):
        rate = pick(results, device, size, quantity, "rate")
        least = pick(results, device, size, quantity, "at_least")
        if rate:
            lines.append(line(task, name, "1/s", rate))
        elif least:
            lines.append(line(task, f"{name}, tester-limited: at least", "1/s", least))
    return [
        *lines,
        *([line(task, "PDR: spread of its searches", "share", spread, Target("at most", 0.02))] if spread else []),
    ]


def never_rises(results: list[Found], device: str) -> Row:
    """Return the line that counts rises of packets a second from a frame size to the next, beyond the intervals."""
    rates = [found for size in SIZES if (found := pick(results, device, size, "pdr", "rate"))]
    rises = sum(above(later, earlier) for earlier, later in pairwise(rates))
    figure = {"estimate": float(rises), "ci_low": None, "ci_high": None, "level": 0.95, "n": len(rates)}
    return line("throughput over frame size", "rises of packets a second", "1", figure, Target("at most", 0.0))


def above(later: Found, earlier: Found) -> bool:
    """Return whether the longer frame's rate lies above the shorter one's without overlap of the intervals."""
    low = later["ci_low"] if later["ci_low"] is not None else later["estimate"]
    high = earlier["ci_high"] if earlier["ci_high"] is not None else earlier["estimate"]
    return bool(low > high)


def pick(results: list[Found], device: str, size: int, quantity: str, statistic: str) -> Found | None:
    """Return the first row of this kind, or None."""
    wanted = {"device": device, "frame_bytes": size, "quantity": quantity, "statistic": statistic}
    return next((one for one in results if all(one[key] == value for key, value in wanted.items())), None)


def line(task: str, name: str, unit: str, found: Found, target: Target | None = None) -> Row:
    """Return a figure of the study as a line of the table."""
    value = float(found["estimate"])
    return Row(
        task=task,
        peer="itself",
        name=name,
        unit=unit,
        ours=value,
        theirs=value,
        is_ratio=False,
        measured=value,
        ci_low=found["ci_low"],
        ci_high=found["ci_high"],
        level=float(found["level"]),
        n=int(found["n"]),
        target=target,
    )
