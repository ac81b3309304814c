"""The longest time that a pipe may hold a packet, from the configuration as the emulator parsed it. Pure.

A trial ends when nothing can be in flight any more, and only then a frame counts as late. A distribution without an
upper end is cut where fewer than one packet in a million exceeds it.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NANOS = 1_000_000_000
RARE = 1e-6
NORMAL_TAIL = 4.9
"""The quantile of the standard normal distribution that one in a million exceeds."""

LONGEST_NS = 60 * NANOS
"""The limit of the wait for the last packet of a heavy tail."""

FULL_FRAME = 1_518
LEAST_SLOTS = 50
"""The minimum capacity of a queue without a limit."""

CODEL_SECONDS = 1
"""CoDel drops at an increasing rate: a queue with room for more stays below this."""


def longest_ns(pipe: dict[str, Any]) -> int:
    """Return the longest time in queue, link and delay line together."""
    delay = pipe.get("delay") or {}
    of_ports = (own["constant"] for own in delay.get("of_ports") or ())
    constant = max([delay.get("constant") or 0, *of_ports, *(point.get("delay") or 0 for point in points(pipe))])
    total = constant + jitter_ns(delay.get("jitter")) + link_ns(pipe, constant)
    return int(min(max(total, 0), LONGEST_NS))


def jitter_ns(distribution: dict[str, Any] | None) -> float:
    """Return the longest random part of the delay, exceeded by one packet in a million."""
    if not distribution:
        return 0.0
    (kind, of), *_ = distribution.items()
    return float(TAILS[kind](of)) if kind in TAILS else float(LONGEST_NS)


TAILS: dict[str, Callable[[dict[str, Any]], float]] = {
    "uniform": lambda of: of["spread"],
    "normal": lambda of: NORMAL_TAIL * of["sd"],
    "table": lambda of: NORMAL_TAIL * of["sd"],
    "exponential": lambda of: -log(RARE) * of["mean"],
    "pareto": lambda of: of["scale"] * (RARE ** (-1 / of["shape"]) - 1),
    # Beyond its mean the tail of a gamma is at most that of an exponential of its scale, within this factor.
    "gamma": lambda of: of["scale"] * 2 * (of["shape"] - log(RARE)),
    "empirical": lambda of: max(value for _, value in of["points"]),
}
"""The quantile of each distribution that one packet in a million exceeds, in nanoseconds."""


def link_ns(pipe: dict[str, Any], constant: int) -> float:
    """Return the time of a full queue on the slowest link, with outages."""
    link, queue = pipe.get("link") or {}, pipe.get("queue") or {}
    rates = [rate for rate in (link.get("rate_bps"), *(point.get("rate_bps") for point in points(pipe))) if rate]
    outages = sum(outage["lasts"] for outage in link.get("outages") or [])
    if (link.get("trace") or {}).get("opportunities"):
        return float(LONGEST_NS)
    if not rates:
        return float(outages)
    default = max(LEAST_SLOTS * FULL_FRAME, max(rates) * constant / (8 * NANOS))
    if "fq-codel" in (queue.get("scheduler") or ()):
        default = max(default, max(rates) * CODEL_SECONDS / 8)
    own = queue.get("limit") or {}
    rooms = [one.get("limit") or own for one in queue.get("classes") or [{}]]
    held = sum(room_of(limit, default) for limit in rooms) + FULL_FRAME
    profile = max((link.get("profile") or {}).get("samples") or [0])
    return float(held * 8 * NANOS / min(rates) + outages + profile * (own.get("slots") or LEAST_SLOTS))


def room_of(limit: dict[str, Any], default: float) -> float:
    """Return the bytes that a queue, or a class of one, may hold."""
    slots, octets = limit.get("slots"), limit.get("bytes")
    return min((size for size in (slots * FULL_FRAME if slots else None, octets) if size), default=default)


def points(pipe: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the points of a trace, at which it changes rate or delay."""
    trace = (pipe.get("link") or {}).get("trace") or {}
    found: list[dict[str, Any]] = (trace.get("points") or {}).get("points") or []
    return found
