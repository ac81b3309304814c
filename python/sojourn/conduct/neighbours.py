"""What else ran on the machine meanwhile: processor time of others, and what a hypervisor took away.

Counts everything that this process has started as ours, down to the last descendant. It tells, and judges by two
thresholds only; what it does to a figure is for the analysis to say.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

OTHERS_CORES = 0.15
"""An idle system's own work stays below this many cores."""

STEAL_CORES = 0.02

BUSY = ("user", "nice", "system", "irq", "softirq")
NAMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class Usage(NamedTuple):
    """Processor time so far, in seconds."""

    at: float
    busy: float
    steal: float
    ours: float


class Contention(NamedTuple):
    """How many cores others had on average."""

    others_cores: float
    steal_cores: float

    @property
    def is_worth_telling(self) -> bool:
        """Whether it may have been felt."""
        return self.others_cores > OTHERS_CORES or self.steal_cores > STEAL_CORES

    @property
    def sentence(self) -> str:
        """For a person."""
        words = f"other programs took {self.others_cores:.1f} of this machine's {os.cpu_count()} cores meanwhile"
        stolen = f", and its host took {self.steal_cores:.2f}" if self.steal_cores > STEAL_CORES else ""
        return words + stolen


def usage() -> Usage:
    """Processor time up to now; zeros where the kernel does not tell."""
    ticks = os.sysconf("SC_CLK_TCK")
    counts = dict.fromkeys(NAMES, 0)
    with suppress(OSError, IndexError, ValueError):
        words = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
        counts |= dict(zip(NAMES, map(int, words), strict=False))
    busy = sum(counts[name] for name in BUSY)
    return Usage(time.monotonic(), busy / ticks, counts["steal"] / ticks, ours_ticks() / ticks)


def contention(before: Usage, after: Usage) -> Contention:
    """What others had between two looks."""
    seconds = max(after.at - before.at, 1e-3)
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return Contention(max(0.0, others) / seconds, max(0.0, after.steal - before.steal) / seconds)


def ours_ticks() -> int:
    """Processor time of this process, of all that it started, and of those that have ended since."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # it may end while it is looked at
                fields = (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                parents[int(path.name)] = int(fields[1])
                spent[int(path.name)] = sum(int(field) for field in fields[11:15])
    return sum(ticks for process, ticks in spent.items() if descends(process, parents))


def descends(process: int, parents: dict[int, int]) -> bool:
    """Whether a process is this one or came from it."""
    own = os.getpid()
    while process != own and process in parents:
        process = parents[process]
    return process == own
