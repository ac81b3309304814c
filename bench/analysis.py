"""A report on ten million probes: its time and memory, compared with a median of each path in Polars.

The run is simulated, so that only the analysis is measured. The peer reads the same records and computes the median
round trip of each path and size, and no more: the cost of reading alone.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.compare import Row, Target, What, alone
from bench.matching import WATCH, Cost
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable

PROBES = 10_080_000
PLAN = ("--quick", "--set", "pairs.probes_per_block=2100", "--set", "pairs.at_most=1h")
TASK = f"a report over {PROBES:,} probes"
PEER = "medians in Polars"

MEDIANS = """
import sys
from pathlib import Path
import polars as pl
def read(name):
    files = sorted(Path(sys.argv[1]).glob(f"{name}-*.arrow"))
    return pl.concat(pl.read_ipc_stream(file) for file in files)
paths = read("blocks").select("block", "device", "cell")
rtt = (pl.col("arrival_ns") - pl.col("departure_ns")).alias("rtt")
known = read("probes").select("block", rtt).join(paths, on="block")
print(known.group_by("device", "cell").agg(pl.col("rtt").median()))
"""


def rows(repetitions: int, scratch: Path, tell: Callable[[str], None]) -> list[Row]:
    """Return the lines of the table."""
    run, sojourn = scratch / "run", [str(Path(sys.executable).with_name("sojourn"))]
    tell(f"analysis: simulating {PROBES:,} probes")
    own = ["--bed", "sim", "--no-history", "--no-report", "--out", str(run)]
    cost([*sojourn, "run", "bridge-latency", *PLAN, *own])
    found: list[tuple[Cost, Cost]] = []
    for number in range(1, repetitions + 1):
        tell(f"analysis: repetition {number}/{repetitions}")
        theirs = cost([sys.executable, "-c", MEDIANS, str(run / "records")])
        found.append((cost([*sojourn, "report", str(run)]), theirs))
    seconds = [(ours.seconds, theirs.seconds) for ours, theirs in found]
    memory = [(ours.peak_mib, theirs.peak_mib) for ours, theirs in found]
    return [
        alone(What(TASK, PEER, "wall time", "s"), seconds, Target("at most", 30)),
        alone(What(TASK, PEER, "peak memory", "MiB"), memory, Target("at most", 2048)),
    ]


def cost(argv: list[str]) -> Cost:
    """Run a process to its end; return wall time and peak memory."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WATCH, *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        check=False,
    )  # fmt: skip
    took = time.monotonic() - began
    if done.returncode not in (0, 4):
        raise MachineError(f"{argv[0]} ended with status {done.returncode}")
    return Cost(took, int(done.stdout.split()[1]) / 1024)
