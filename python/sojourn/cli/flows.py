"""The table of a host's flows: its columns, short forms of numbers, and the order.

A flow has the fields of `tcplog watch`: its counters and the columns of its last sample. Draws nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Flow = dict[str, Any]
NOTHING = "–"
INFINITE = 2_147_483_647
UNSET_US = 2**32 - 1
CLOSED = ("CLOSED", "TIME-WAIT")
STATES = (
    *("", "ESTAB", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT"),
    *("CLOSED", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING", "NEW-SYN-RECV", "BOUND"),
)
"""The states of include/net/tcp_states.h, with the names of `ss`."""


@dataclass(frozen=True)
class Column:
    """One column: its text for a flow, and its sort key.

    `rank`: in a narrow terminal the columns with the highest ranks are left out; those of rank 0 stay.
    """

    title: str
    rank: int
    say: Callable[[Flow], str]
    key: Callable[[Flow], float | str]
    left: bool = False


def flows_of(told: dict[str, Any]) -> list[Flow]:
    """Return the flows of one line of the instrument that the filters admit.

    A flow and its sample both have `packets_out`: packets sent, and segments in flight. The flow's counters are used.
    """
    return [(flow.get("sample") or {}) | flow for flow in told.get("flows") or [] if flow.get("wanted", True)]


def place(flow: Flow, end: str) -> str:
    """Return address and port of one end."""
    address, port = str(flow.get(f"{end}_address", "")), flow.get(f"{end}_port", "")
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def state(flow: Flow) -> str:
    """Return the name of the connection's state."""
    known = flow.get("state")
    if flow.get("ended"):
        return "CLOSED"
    return NOTHING if known is None else STATES[known] if 0 < known < len(STATES) else str(known)


def short(value: float | None) -> str:
    """Return a number in at most five characters: 999, 12.3k, 4.56M, 1.20G."""
    if value is None or value < 0:
        return NOTHING
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e4) * (1 - 5e-5):
            return f"{three(value / size)}{unit}"
    return f"{value:.0f}"


def duration(us: float | None) -> str:
    """Return a time with three digits, from microseconds."""
    if us is None or us <= 0 or us >= UNSET_US:
        return NOTHING
    size, unit = next(one for one in ((1e6, "s"), (1e3, "ms"), (0.0, "µs")) if us >= one[0] * (1 - 5e-4))
    return f"{three(us / (size or 1.0))}{unit}"


def three(part: float) -> str:
    """Return a number with three digits."""
    return f"{part:.{2 if part < 9.995 else 1 if part < 99.95 else 0}f}"


def threshold(flow: Flow) -> str:
    """Return the slow-start threshold, which is infinite until a loss."""
    known = flow.get("snd_ssthresh")
    return "∞" if known is not None and known >= INFINITE else short(known)


def counted(title: str, rank: int, name: str) -> Column:
    """Return a column of a count."""
    return Column(title, rank, lambda flow: short(flow.get(name)), number(name))


def timed(title: str, rank: int, name: str) -> Column:
    """Return a column of a time."""
    return Column(title, rank, lambda flow: duration(flow.get(name)), number(name))


def named(title: str, rank: int, name: str) -> Column:
    """Return a column of a name."""
    return Column(
        title,
        rank,
        lambda flow: printable(flow.get(name)) or NOTHING,
        lambda flow: printable(flow.get(name)),
        left=True,
    )


def printable(name: str | None) -> str:
    """Return a name without control characters: a process chooses its own name, and root may read it."""
    return "".join(letter if letter.isprintable() else "?" for letter in name or "")


def number(name: str) -> Callable[[Flow], float]:
    """Return a sort key; an unknown value is less than any other."""
    return lambda flow: -math.inf if flow.get(name) is None else float(flow[name])


def end(title: str) -> Column:
    """Return a column of an end."""
    return Column(title, 0, lambda flow: place(flow, title), lambda flow: place(flow, title), left=True)


COLUMNS = {
    "flow": Column("flow", 9, lambda flow: short(flow.get("flow") or None), number("flow")),
    "local": end("local"),
    "remote": end("remote"),
    "command": named("command", 4, "command"),
    "state": Column("state", 7, state, state, left=True),
    "algorithm": named("cc", 6, "algorithm"),
    "cwnd": counted("cwnd", 1, "snd_cwnd"),
    "ssthresh": Column("ssthr", 6, threshold, number("snd_ssthresh")),
    "flight": counted("flight", 5, "in_flight_bytes"),
    "srtt": timed("srtt", 1, "srtt_us"),
    "min": timed("min", 4, "rtt_min_us"),
    "rate": counted("rate", 2, "delivery_rate_bps"),
    "retrans": counted("retr", 1, "total_retrans"),
    "in": counted("in", 3, "packets_in"),
    "out": counted("out", 3, "packets_out"),
    "skipped": counted("skip", 2, "skipped"),
}
"""The columns in their order; the names are those of --sort."""

MAY_BE_UNKNOWN = ("flow", "command")
"""Left out if no flow has one: without a log there are no numbers, and older sockets have no command."""

UNITS = {
    "segments": ("cwnd", "ssthresh", "retrans"), "bytes": ("flight",), "bit/s": ("rate",),
    "packets": ("in", "out", "skipped"),
}  # fmt: skip


def units(shown: Collection[str]) -> str:
    """Return the units of these columns' numbers."""
    told = ((unit, [COLUMNS[name].title for name in names if name in shown]) for unit, names in UNITS.items())
    return "; ".join(f"{', '.join(titles)}: {unit}" for unit, titles in told if titles)
