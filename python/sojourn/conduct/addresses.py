"""Have a bridge learn MAC addresses and count those it learned: address tables of switches (RFC 2889, 5.7 and 5.8).

The sending program runs at the B side. The learned addresses are read from the bridge's FDB, which is exact; RFC 2889
has to infer them from flooded frames. Decides nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.bed.ssh import reading
from sojourn.conduct.search import Unanswerable
from sojourn.instruments.learning import send_new_addresses
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import Link
    from sojourn.conduct.tester import Tester

LESSON = 4096
"""The number of addresses in a trial of the learning rate."""

OURS = "02:78:"
GRACE_SECONDS = 0.02
"""the time for frames that still wait for the device's core"""


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of one trial of learning."""

    count: int
    learned: int
    sent_pps: float


@dataclass
class Lesson:
    """Trials of learning for the bridges of one link, each beginning with an empty FDB."""

    tester: Tester
    link: Link
    log: list[dict[str, Any]] = field(default_factory=list)

    def learn(self, count: int, rate_pps: float | None) -> Learned:
        """Send frames from `count` source addresses, and return how many of them the last bridge has learned."""
        bridges = [station.name for station in self.link.stations if station.mode.is_switch and station.name]
        site = self.tester.session.site
        if site.simulated or not bridges:
            raise Unanswerable(f"{self.link.path} learns no addresses: only a bridge does")
        self.tester.flush_fdb(self.link.path)
        backend, dev = site.bed.backend, self.link.b_dev
        took_ns = send_new_addresses(backend, "b", dev, count, rate_pps or 0.0, self.link.a_mac)
        time.sleep(GRACE_SECONDS)
        learned = addresses_of(backend, self.link.device_host, bridges[-1])
        found = Learned(count, learned, count / (took_ns / 1e9))
        self.log.append({"count": count, "asked_pps": rate_pps, "sent_pps": found.sent_pps, "learned": learned})
        return found


def addresses_of(backend: Backend, host: HostName, bridge: str) -> int:
    """Return how many of our source addresses are in a bridge's FDB."""
    with reading(f"host {host.upper()}"):
        said = json_value(backend.run(host, ["bridge", "-json", "fdb", "show", "br", bridge]))
        return sum(entry["mac"].startswith(OURS) for entry in said)
