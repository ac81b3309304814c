"""Times and rates with units: the table of units, and the parser, of the Python package."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|min|h)")
"""A number and its unit, alone or within a text (`find_durations`)."""

SCALES = {"": 0, "k": 3, "M": 6, "G": 9}
"""The prefixes of rates, as powers of ten."""
RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M|G)?(pps|bit/s)")


def nanoseconds(text: str) -> Decimal | None:
    """Return the time that a text says, such as "1.5ms"; None if it is no time with a unit."""
    found = DURATION.fullmatch(text.strip())
    return Decimal(found[1]) * UNITS_NS[found[2]] if found else None


def rate(text: str) -> tuple[str, Decimal] | None:
    """Return the unit of a rate, "pps" or "bit/s", and how many of them: "10kpps", "100Mbit/s"; None if it is none."""
    found = RATE.fullmatch(text.strip())
    return (found[3], Decimal(found[1]).scaleb(SCALES[found[2] or ""])) if found else None


def find_durations(words: str) -> list[Decimal]:
    """Return every time among other words, in nanoseconds."""
    return [Decimal(number) * UNITS_NS[unit] for number, unit in re.findall(DURATION.pattern + r"\b", words)]


def find_rates_bps(words: str) -> list[Decimal]:
    """Return every rate in bits among other words, in bit/s."""
    found = re.findall(RATE.pattern + r"\b", words)
    return [Decimal(number).scaleb(SCALES[prefix]) for number, prefix, unit in found if unit == "bit/s"]


def as_duration(nanos: int) -> str:
    """Return the shortest exact form up to seconds: 1500000 -> "1500us"."""
    for unit in ("s", "ms", "us"):
        if nanos % UNITS_NS[unit] == 0:
            return f"{nanos // UNITS_NS[unit]}{unit}"
    return f"{nanos}ns"


class Width(NamedTuple):
    """Half the width of an interval: a share of the estimate, or a time; the other one is None."""

    share: Decimal | None
    nanos: Decimal | None

    def of(self, estimate: float) -> float:
        """Return the half-width in the unit of the estimate; for a time, in ns."""
        return float(self.share) * abs(estimate) if self.share is not None else float(self.nanos or 0)


WIDTH = re.compile(r"(?:±|\+/?-)?\s*(.+)")
SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def width(text: str) -> Width | None:
    """Return the half-width that a text says, such as "±5%" or "±0.1us"; None if it is none, or zero."""
    found = WIDTH.fullmatch(text.strip())
    if found is None:
        return None
    share, nanos = SHARE.fullmatch(found[1]), nanoseconds(found[1])
    said = Width(Decimal(share[1]) / 100 if share else None, nanos)
    return said if said.share or said.nanos else None
