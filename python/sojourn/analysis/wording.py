"""Numbers in sentences: times in microseconds, with as many decimals as their scale needs."""

from __future__ import annotations

from math import floor, log10

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
HOLDS_ZERO = "an interval that holds zero"
"""Follows a figure whose interval contains zero."""

THIN = "\N{NARROW NO-BREAK SPACE}"
US = "\N{MICRO SIGN}s"


def micro(ns: float) -> str:
    """Return a time in microseconds with two or three significant digits: "1.31 µs"."""
    us = ns / 1000
    return f"{fixed(us, decimals(abs(us)))} {US}"


def decimals(scale: float) -> int:
    """Return the number of decimals that show two or three significant digits at this scale; none from 100 on."""
    if scale >= 100:
        return 0
    return 2 if not scale > 0 else min(3, max(1, 1 - floor(log10(scale))))


def fixed(value: float, places: int) -> str:
    """Return the number with this many decimals, a true minus sign, and thin spaces between thousands."""
    text = f"{value:,.{places}f}".replace(",", THIN)
    return text.removeprefix("-") if round(value, places) == 0 else text.replace("-", MINUS)


def percent(share: float) -> str:
    """Return a share with two or three digits: "0.25 %", "3.1 %", "70 %", "99.9 %", "100 %"; "99.97 %" is not rounded
    to 100."""
    value = 100 * share
    if 99.95 <= value < 100 - 1e-6:
        return f"{fixed(value, min(6, 1 - floor(log10(100 - value))))[:-1].rstrip('0')} %"
    if value == 0 or 10 <= abs(value) < 99 or abs(value) >= 99.95:
        return f"{fixed(value, 0)} %"
    places = (
        1 if abs(value) >= 1 else min(6, decimals(abs(value)) if abs(value) >= 0.01 else 1 - floor(log10(abs(value))))
    )
    return f"{fixed(value, places).rstrip('0').rstrip('.')} %"


def counted(count: float, what: str, many: str = "") -> str:
    """Return a count with its noun: "1 search", "4 searches"."""
    return f"{count:.0f} {what if count == 1 else many or what + 's'}"
