"""Ports of the devices' host that only a running emulator joins: emulators among the devices, and rated links.

A cable that is held to a rate is two cables with an emulator's link between them, which serialises frame by frame, one
each way. Pure, as the model: it starts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from sojourn.bed.model import Port

WIRE_BYTES = 24
"""What a frame takes on an Ethernet beside its bytes without FCS: preamble, FCS, gap."""


@dataclass(frozen=True)
class Rated:
    """What a cable is held to, each way."""

    rate_bps: int | None
    """Bits per second on the wire; None: as it comes."""
    delay_ns: int = 0
    queue_bytes: int = 150_000
    """Before it; what does not fit is lost."""

    @property
    def label(self) -> str:
        """As a drawing has it: "100 Mbit/s, 5 us"."""
        rate = [f"{self.rate_bps / 1e6:g} Mbit/s"] if self.rate_bps else []
        return ", ".join([*rate, *([f"{self.delay_ns / 1e3:g} us"] if self.delay_ns else [])])

    @property
    def words(self) -> str:
        """The pipe that does it."""
        parts = []
        if self.rate_bps:
            parts.append(f"rate {self.rate_bps}bit/s overhead {WIRE_BYTES} queue {self.queue_bytes}B")
        if self.delay_ns:
            parts.append(f"delay {self.delay_ns}ns")
        return " ".join(parts)


@dataclass(frozen=True)
class LinkSpec:
    """What the cables of one path are held to, from A to B; one value is for all of them."""

    rates_bps: tuple[int | None, ...]
    delays_ns: tuple[int, ...] = (0,)
    queue_bytes: int = 150_000

    def cables(self, count: int, path: str) -> tuple[Rated | None, ...]:
        """Cable by cable; None where one is a plain cable."""
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
    """Of its records, and of its control socket: letters and digits."""
    path: str
    left: Port
    right: Port
    label: str | None = None
    rated: Rated | None = None
