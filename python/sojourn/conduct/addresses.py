"""Teaches a bridge addresses and counts what it has learned: the tables of switches (RFC 2889, 5.7 and 5.8).

The teaching program runs at the far end; what was learned is read from the bridge itself, which is exact where RFC 2889
has to infer it from floods. Decides nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.conduct.search import Unanswerable
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from sojourn.bed.model import Link
    from sojourn.conduct.site import Site

LESSON = 4096
"""Addresses of a lesson whose rate is in question."""

OURS = "02:78:"
TEACHER = Path(__file__).with_name("teach.py")
PATIENCE_SECONDS = 120.0
SETTLE_SECONDS = 0.02
"""Frames may still wait for the device's core."""


@dataclass(frozen=True, slots=True)
class Taught:
    """What came of one lesson."""

    count: int
    learned: int
    sent_pps: float


@dataclass
class Lesson:
    """Lessons for the bridges of one link, each beginning with a bridge that has forgotten everything."""

    site: Site
    link: Link
    log: list[dict[str, Any]] = field(default_factory=list)

    def taught(self, count: int, rate_pps: float | None) -> Taught:
        """Frames from so many addresses, and how many of these the last bridge then knows."""
        bridges = [station.name for station in self.link.stations if station.kind == "bridge" and station.name]
        if self.site.simulated or not bridges:
            raise Unanswerable(f"{self.link.arm} learns no addresses: only a bridge does")
        self.site.bed.forget(self.link.arm)
        said = self._teach(count, rate_pps or 0.0)
        time.sleep(SETTLE_SECONDS)
        entries = json.loads(self.site.bed.run("d", ["bridge", "-json", "fdb", "show", "br", bridges[-1]]))
        learned = sum(entry["mac"].startswith(OURS) for entry in entries)
        taught = Taught(count, learned, count / (said["elapsed_ns"] / 1e9))
        self.log.append({"count": count, "asked_pps": rate_pps, "sent_pps": taught.sent_pps, "learned": learned})
        return taught

    def _teach(self, count: int, rate_pps: float) -> dict[str, Any]:
        argv = [sys.executable, "-I", "-S", str(TEACHER), self.link.b_dev, str(count), str(rate_pps), self.link.a_mac]
        process = self.site.start("b")(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, said = process.communicate(timeout=PATIENCE_SECONDS)
        if process.returncode:
            raise MachineError(f"addresses cannot be taught: {said.strip().splitlines()[-1]}")
        answer: dict[str, Any] = json.loads(out)
        return answer
