"""Rates in the notation of plans: "10kpps", "100Mbit/s", "50%". Reads and writes text; knows no device and no clock."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from sojourn import units
from sojourn.plan.values import Reader, word_or
from sojourn.units import SCALES, UNITS_NS, as_duration

SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")

AT_SIZE = re.compile(r"(.+?)\s+at\s+(\d{1,6})")

Unit = Literal["pps", "bit/s", "share", "interval"]


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean load in its configured unit: frames/s, frame bits with FCS/s, a share, or ns between frames."""

    unit: Unit
    value: Decimal
    size: int | None = None
    """The only size that is sent at this rate, in the plan's kind of size; None for all sizes."""

    def is_for(self, size: int) -> bool:
        """Return whether frames of this size are sent at it."""
        return self.size in {None, size}

    @property
    def share(self) -> float | None:
        """The share of the path's own throughput, 1 for all of it; None for other units."""
        return float(self.value) if self.unit == "share" else None

    def pps(self, frame_bytes: int) -> float | None:
        """Return frames per second for this frame size; None for a share, which needs a measurement."""
        if self.unit == "share":
            return None
        if self.unit == "interval":
            return float(Decimal(UNITS_NS["s"]) / self.value)
        return float(self.value if self.unit == "pps" else self.value / (8 * frame_bytes))

    def __str__(self) -> str:
        """The shortest exact notation, which a plan can read."""
        return self._words if self.size is None else f"{self._words} at {self.size}"

    @property
    def _words(self) -> str:
        if self.unit == "interval":
            return as_duration(int(self.value))
        if self.unit == "share":
            return f"{(self.value * 100).normalize():f}%"
        for prefix, zeros in reversed(SCALES.items()):
            if self.value >= 10**zeros and (self.value * 1000) % 10**zeros == 0:
                return f"{(self.value / 10**zeros).normalize():f}{prefix}{self.unit}"
        return f"{self.value:f}{self.unit}"


def rate(*, shares: bool = True, sizes: bool = False) -> Reader:
    """Return the reader of a rate in frames, bits, or (if allowed) as a share of the throughput or for one size."""

    def read(value: Any) -> Rate | None:
        if not isinstance(value, str):
            return None
        if sizes and (of_one := AT_SIZE.fullmatch(value)):
            found = plainly(of_one[1])
            return None if found is None else replace(found, size=int(of_one[2]))
        return plainly(value)

    def plainly(value: str) -> Rate | None:
        if plain := units.rate(value):
            unit, number = plain
            return Rate("pps" if unit == "pps" else "bit/s", number) if 0 < number <= 10**12 else None
        found = SHARE.fullmatch(value.strip()) if shares else None
        if not found or not 0 < Decimal(found[1]) <= 1000:
            return None
        return Rate("share", Decimal(found[1]) / 100)

    examples = 'such as "10kpps", "100Mbit/s" or "50%"' if shares else 'such as "10kpps" or "100Mbit/s"'
    examples += ', of one size "100Mbit/s at 64"' if sizes else ""
    return Reader(read, f"a rate with its unit, {examples}", str)


def bit_rate() -> Reader:
    """Return the reader of a rate in frame bits per second, a whole number."""
    rates = rate(shares=False)

    def read(value: Any) -> int | None:
        found: Rate | None = rates.read(value)
        return int(found.value) if found and found.unit == "bit/s" and found.value == int(found.value) else None

    return Reader(read, 'a rate in bits, such as "100Mbit/s"', lambda bps: str(Rate("bit/s", Decimal(bps))))


UNLIMITED = 0
"""The value of "unlimited": the rate of a cable without a limit."""


def cable_rate() -> Reader:
    """Return the reader of a cable's rate in bits per second, or none."""
    either = word_or("unlimited", UNLIMITED, bit_rate())
    return replace(either, expected='a rate in bits, such as "100Mbit/s", or "unlimited"')


def interval_rate(reader: Reader) -> Reader:
    """Return the reader of a duration between frames, which becomes a rate."""

    def read(value: Any) -> Rate | None:
        nanos = reader.read(value)
        return None if nanos is None else Rate("interval", Decimal(nanos))

    return Reader(read, reader.expected, str)


def share() -> Reader:
    """Return the reader of a share: "10%", or 0.1; from 0 to 1."""

    def read(value: Any) -> float | None:
        if isinstance(value, str) and (found := SHARE.fullmatch(value.strip())):
            value = float(Decimal(found[1]) / 100)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if number and 0 <= value <= 1 else None

    return Reader(read, 'a share from "0%" to "100%"')


RAMP = re.compile(r"ramp:(.+)-(.+)")
BURST = re.compile(r"burst:(\d{1,6})")


def schedule() -> Reader:
    """Return the reader of a schedule: regular, poisson, flood, burst:N, ramp:FROM-TO."""
    plain = rate(shares=False)

    def read(value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        burst, ramp = BURST.fullmatch(value), RAMP.fullmatch(value)
        good = (
            value in ("regular", "poisson", "flood")
            or (burst and int(burst[1]) >= 2)
            or (ramp and plain.read(ramp[1]) and plain.read(ramp[2]))
        )
        return value if good else None

    return Reader(read, '"regular", "poisson", "flood", "burst:8" or "ramp:1kpps-10kpps"')


def ramp_ends(words: str, frame_bytes: int) -> tuple[float, float] | None:
    """Return first and last rate of a ramp in frames/s; None for any other schedule."""
    found = RAMP.fullmatch(words)
    if not found:
        return None
    first, last = (rate(shares=False).read(found[which]).pps(frame_bytes) for which in (1, 2))
    return first, last
