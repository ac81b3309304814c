"""Numbers as a person reads them: value and interval, rounded by what the interval can carry, with their unit.

Times are shown in µs whatever they were recorded in. Two significant digits of the interval's half-width decide the
decimals; a number without an interval keeps four significant digits. It never computes a statistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sojourn.units import nanoseconds

MINUS = "\u2212"
WHOLE_RATE = 1000.0
"""Rates from here on are shown in whole frames, unless both ends of the interval are then the same."""

NOTHING = "\u2013"  # what stands where there is no number


@dataclass(frozen=True)
class Shown:
    """One value on its way to a person: already in its display unit, not yet rounded."""

    value: float | None
    low: float | None
    high: float | None
    unit: str

    @property
    def text(self) -> str:
        """The value, rounded, without its unit."""
        return fixed(self.value, self.decimals)

    @property
    def interval(self) -> str:
        """The interval, rounded like the value: '1.24–1.38', or '−0.02 to 0.05' where a dash could be misread."""
        if self.low is None and self.high is None:
            return NOTHING
        clear = self.low is not None and self.high is not None and self.low >= 0
        return f"{self._end(self.low)}{NOTHING if clear else ' to '}{self._end(self.high)}"

    @property
    def told(self) -> tuple[str, ...]:
        """The interval as a line beside the value; no line where it is not known."""
        return () if self.interval == NOTHING else (f"95 % CI {self.interval}",)

    @property
    def decimals(self) -> int:
        """Digits after the point that the interval can carry."""
        half = half_width(self.low, self.high)
        if half is None:
            return plain_decimals(self.value)
        if self.unit == "1/s" and abs(self.value or 0.0) >= WHOLE_RATE and fixed(self.low, 0) != fixed(self.high, 0):
            return 0
        return max(0, min(6, 1 - math.floor(math.log10(half))))

    def sentence(self, level: float = 0.95) -> str:
        """Value, unit and interval in running text."""
        spaced = f"{self.text} {self.unit}".strip()
        return spaced if self.interval == NOTHING else f"{spaced} ({percent(level)} CI {self.interval})"

    def _end(self, value: float | None) -> str:
        return "unbounded" if value is None else fixed(value, self.decimals)


def show(value: float | None, low: float | None, high: float | None, unit: str) -> Shown:
    """Converts a recorded value to its display unit: ns to µs, ratios to %, bit/s to Mbit/s."""
    factor, display = DISPLAY.get(unit, (1.0, unit))
    return Shown(_times(value, factor), _times(low, factor), _times(high, factor), display)


DISPLAY = {
    "ns": (1e-3, "µs"),
    "ns/byte": (1.0, "ns/byte"),
    "ns^2": (1e-6, "µs²"),
    "ns²": (1e-6, "µs²"),
    "bit/s": (1e-6, "Mbit/s"),
    "ratio": (100.0, "%"),
    "1": (1.0, ""),
    "s/s": (1e6, "µs/s"),
}


def fixed(value: float | None, decimals: int) -> str:
    """A number with so many decimals, a true minus sign, and no negative zero."""
    if value is None or not math.isfinite(value):
        return NOTHING
    text = f"{value:,.{decimals}f}".replace(",", "\u202f")
    if text.startswith("-"):
        text = text[1:] if not text.strip("-0.\u202f") else MINUS + text[1:]
    return text


def count(value: float | None) -> str:
    """A whole number with thin spaces between thousands."""
    return fixed(value, 0)


def percent(level: float | None) -> str:
    """A level as people write it: 95 %, 99.9 %."""
    return NOTHING if level is None else f"{level * 100:.6g} %"


def nominal(level: float | None) -> str:
    """The level that was asked for, of an interval that has at least that: exact ones of few values lie above it."""
    return percent(max((one for one in (0.95, 0.99, 0.999) if level and one <= level + 1e-9), default=level))


def duration(ns: float | None) -> str:
    """A time in the largest unit that leaves it whole or short: 1 ms, 500 µs, 1 s."""
    if ns is None:
        return NOTHING
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= factor:
            return f"{ns / factor:.4g} {unit}"
    return f"{ns:.4g} ns"


def as_written(time: str | None) -> str:
    """A time of a plan, such as "700ms", as a report writes it."""
    nanos = nanoseconds(time) if time else None
    return duration(None if nanos is None else float(nanos))


def half_width(low: float | None, high: float | None) -> float | None:
    """Half the interval, or None where the interval is open, absent or a point."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return None
    return (high - low) / 2


def plain_decimals(value: float | None, digits: int = 4) -> int:
    """Decimals that show so many significant digits of a number that has no interval; a whole number has none."""
    if value is None or not math.isfinite(value) or value == int(value):
        return 0
    return max(0, min(4, digits - 1 - math.floor(math.log10(abs(value)))))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None or not math.isfinite(value) else value * factor
