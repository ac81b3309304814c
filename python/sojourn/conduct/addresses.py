"""Teaches a bridge addresses and counts what it has learned: the tables of switches (RFC 2889, 5.7 and 5.8).

The teaching program runs at the far end; what was learned is read from the bridge itself, which is exact where RFC 2889
has to infer it from floods. Decides nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.conduct.search import Unanswerable
from sojourn.instruments.teaching import teach_addresses

if TYPE_CHECKING:
    from sojourn.bed.model import Link
    from sojourn.conduct.tester import Tester

LESSON = 4096
"""Addresses of a lesson whose rate is in question."""

OURS = "02:78:"
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

    tester: Tester
    link: Link
    log: list[dict[str, Any]] = field(default_factory=list)

    def taught(self, count: int, rate_pps: float | None) -> Taught:
        """Frames from so many addresses, and how many of these the last bridge then knows."""
        bridges = [station.name for station in self.link.stations if station.mode.is_switch and station.name]
        site = self.tester.sitting.site
        if site.simulated or not bridges:
            raise Unanswerable(f"{self.link.path} learns no addresses: only a bridge does")
        self.tester.forget(self.link.path)
        backend, dev = site.bed.backend, self.link.b_dev
        took_ns = teach_addresses(backend, "b", dev, count, rate_pps or 0.0, self.link.a_mac)
        time.sleep(SETTLE_SECONDS)
        entries = json.loads(backend.run("d", ["bridge", "-json", "fdb", "show", "br", bridges[-1]]))
        learned = sum(entry["mac"].startswith(OURS) for entry in entries)
        taught = Taught(count, learned, count / (took_ns / 1e9))
        self.log.append({"count": count, "asked_pps": rate_pps, "sent_pps": taught.sent_pps, "learned": learned})
        return taught
