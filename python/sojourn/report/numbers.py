"""Numbers for people: value and interval, rounded to what the interval supports, with their unit.

Times are shown in µs, whatever unit they were recorded in. Two significant digits of the interval's half-width
determine the decimals; a number without an interval has four significant digits. No statistic is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sojourn.units import nanoseconds

MINUS = "\u2212"
WHOLE_RATE = 1000.0
"""Rates from this value on are shown in whole frames, unless both ends of the interval would then be the same."""

NOTHING = "\u2013"  # shown where there is no number


@dataclass(frozen=True)
class Shown:
    """One value in its display unit, not yet rounded."""

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
        """The interval as a line beside the value; empty if there is none."""
        return () if self.interval == NOTHING else (f"95 % CI {self.interval}",)

    @property
    def decimals(self) -> int:
        """The number of decimals that the interval supports."""
        half = half_width(self.low, self.high)
        if half is None:
            return plain_decimals(self.value)
        if self.unit == "1/s" and abs(self.value or 0.0) >= WHOLE_RATE and fixed(self.low, 0) != fixed(self.high, 0):
            return 0
        return max(0, min(6, 1 - math.floor(math.log10(half))))

    def sentence(self, level: float = 0.95) -> str:
        """Return value, unit and interval for running text."""
        spaced = f"{self.text} {self.unit}".strip()
        return spaced if self.interval == NOTHING else f"{spaced} ({percent(level)} CI {self.interval})"

    def _end(self, value: float | None) -> str:
        return "unbounded" if value is None else fixed(value, self.decimals)


def show(value: float | None, low: float | None, high: float | None, unit: str) -> Shown:
    """Convert a recorded value to its display unit: ns to µs, ratios to %, bit/s to Mbit/s."""
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
    """Return a number with `decimals` decimals, a true minus sign, and no negative zero."""
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
    """Return a level in percent: 95 %, 99.9 %."""
    return NOTHING if level is None else f"{level * 100:.6g} %"


def nominal(level: float | None) -> str:
    """Return the requested level of an interval; exact intervals of few values have a higher actual level."""
    return percent(max((one for one in (0.95, 0.99, 0.999) if level and one <= level + 1e-9), default=level))


def duration(ns: float | None) -> str:
    """Return a time in the largest of s, ms, µs and ns in which it is at least 1: 1 ms, 500 µs, 1 s."""
    if ns is None:
        return NOTHING
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= factor:
            return f"{ns / factor:.4g} {unit}"
    return f"{ns:.4g} ns"


def as_written(time: str | None) -> str:
    """Return a time of a plan, such as "700ms", in the form of a report."""
    nanos = nanoseconds(time) if time else None
    return duration(None if nanos is None else float(nanos))


def half_width(low: float | None, high: float | None) -> float | None:
    """Half the interval, or None where the interval is open, absent or a point."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return None
    return (high - low) / 2


def plain_decimals(value: float | None, digits: int = 4) -> int:
    """Return the decimals that show `digits` significant digits of a value without an interval; 0 if it is whole."""
    if value is None or not math.isfinite(value) or value == int(value):
        return 0
    return max(0, min(4, digits - 1 - math.floor(math.log10(abs(value)))))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None or not math.isfinite(value) else value * factor
