"""The rated cables of a run's paths, and the time of a frame on them, from bed.json.

A cable carries a frame's bits and 20 bytes more on the wire (`L1_OVERHEAD`), one frame at a time, in each direction
independently. Each sender has its own first cable; all senders share the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.analysis.streams import L1_OVERHEAD

if TYPE_CHECKING:
    from sojourn.analysis.run import Run


@dataclass(frozen=True, slots=True)
class Cables:
    """The cables from A to B: bits per second on the wire (None: no rate), and their propagation delay in ns."""

    rates: tuple[float | None, ...]
    delay_ns: float

    @property
    def known(self) -> list[float]:
        """The rates of the cables that have one."""
        return [one for one in self.rates if one is not None]

    @property
    def per_byte_ns(self) -> float:
        """The additional delay per byte of a frame that does not wait: 8/R on every cable."""
        return sum(8e9 / one for one in self.known)

    def time_ns(self, frame_bytes: float) -> float:
        """Return the time of a frame (with its FCS) on the cables without queueing, stored and forwarded."""
        return self.delay_ns + (frame_bytes + L1_OVERHEAD) * self.per_byte_ns

    def through_bps(self, senders: int = 1) -> float:
        """Return the maximum total rate of the senders: the sum of their own cables, or the slowest that they share."""
        own, shared = self.rates[0], [one for one in self.rates[1:] if one is not None]
        return min([*([] if own is None else [senders * own]), *shared])

    def least_ns(self, frame_bytes: float, senders: int = 1) -> float:
        """Return the minimum time between frames, of all senders together."""
        return (frame_bytes + L1_OVERHEAD) * 8e9 / self.through_bps(senders)


def cables_of(run: Run) -> dict[str, Cables]:
    """Return the cables of every path that has a cable with a rate."""
    found = {}
    for path in run.bed.get("stable", {}).get("bed", {}).get("paths", []):
        several = [one or {} for one in path.get("rated", [])]
        rates = tuple(float(one["rate_bps"]) if one.get("rate_bps") else None for one in several)
        if any(rates):
            found[str(path["path"])] = Cables(rates, float(sum(one.get("delay_ns") or 0 for one in several)))
    return found
