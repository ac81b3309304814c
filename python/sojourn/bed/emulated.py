"""Ports of the devices' host that only a running emulator joins: emulators as devices, and rated links.

A cable with a rate consists of two cables with an emulator's link between them, which serialises frames one after
another in each direction. Pure, as the model: it starts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from sojourn.bed.model import Port

WIRE_BYTES = 24
"""The overhead of a frame on Ethernet beyond its bytes without FCS: preamble, FCS, inter-frame gap."""


@dataclass(frozen=True)
class Rated:
    """The rate, delay and queue of a cable, in each direction."""

    rate_bps: int | None
    """Bits per second on the wire; None: no limit."""
    delay_ns: int = 0
    queue_bytes: int = 150_000
    """The queue before the rate; what does not fit is lost."""

    @property
    def label(self) -> str:
        """The text in a drawing: "100 Mbit/s, 5 us"."""
        rate = [f"{self.rate_bps / 1e6:g} Mbit/s"] if self.rate_bps else []
        return ", ".join([*rate, *([f"{self.delay_ns / 1e3:g} us"] if self.delay_ns else [])])

    @property
    def words(self) -> str:
        """The configuration string of the emulator's pipe."""
        parts = []
        if self.rate_bps:
            parts.append(f"rate {self.rate_bps}bit/s overhead {WIRE_BYTES} queue {self.queue_bytes}B")
        if self.delay_ns:
            parts.append(f"delay {self.delay_ns}ns")
        return " ".join(parts)


@dataclass(frozen=True)
class LinkSpec:
    """The rates and delays of one path's cables, from A to B; a single value applies to all of them."""

    rates_bps: tuple[int | None, ...]
    delays_ns: tuple[int, ...] = (0,)
    queue_bytes: int = 150_000

    def cables(self, count: int, path: str) -> tuple[Rated | None, ...]:
        """Return the rate and delay of each cable; None for a plain cable."""
        for name, values in (("rates", self.rates_bps), ("delays", self.delays_ns)):
            if len(values) not in (1, count):
                raise RequestError(f"link of {path}: {len(values)} {name} for {count} cables from A to B")
        rates = self.rates_bps * count if len(self.rates_bps) == 1 else self.rates_bps
        delays = self.delays_ns * count if len(self.delays_ns) == 1 else self.delays_ns
        pairs = zip(rates, delays, strict=True)
        return tuple(Rated(rate, delay, self.queue_bytes) if rate or delay else None for rate, delay in pairs)


@dataclass(frozen=True)
class Emulated:
    """Two ports that an emulator joins: a device (which has a label), or a rated link."""

    name: str
    """The name of its records and of its control socket: letters and digits."""
    path: str
    left: Port
    right: Port
    label: str | None = None
    rated: Rated | None = None
