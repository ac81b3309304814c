"""Names and printed forms of figures: names, conditions, numbers, and tables that fit the terminal.

A table never wraps a cell: a label that is too long for its column is on a line of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sojourn.analysis.leading import leading_of, place_of
from sojourn.analysis.wording import THIN, decimals, fixed, percent
from sojourn.records.results import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

GAP = "  "
NOTHING = "–"
SCALES = {"ns": (1e-3, "µs"), "ns^2": (1e-6, "µs²"), "s/s": (1e6, "µs/s")}
RATES = {"bit/s": ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")), "1/s": ((1e6, "million/s"), (1e3, "thousand/s"))}
SHARES = frozenset({"loss_ratio"})
"""Quantities that are printed in per cent."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit of the figures in one table: times in microseconds, rates by their size."""

    factor: float
    unit: str

    @staticmethod
    def of(unit: str | None, values: Sequence[float | None], *, share: bool = False) -> Scale:
        """Return the scale for these values; for a share, per cent."""
        if share:
            return Scale(100.0, "%")
        most = max((abs(one) for one in values if one is not None), default=0.0)
        for size, shown in RATES.get(unit or "", ()):
            if most >= 10 * size:
                return Scale(1 / size, shown)
        return Scale(*SCALES.get(unit or "", (1.0, "" if unit == "1" else unit or "")))

    def headed(self, name: str) -> str:
        """Return a heading with the unit of the column."""
        return f"{name}, {self.unit}" if self.unit else name

    def number(self, value: float | None, places: int) -> str:
        """Return a value with `places` decimals; a dash for None."""
        return NOTHING if value is None else fixed(value * self.factor, places)

    def signed(self, value: float | None, places: int) -> str:
        """Return a value, always with its sign."""
        text = self.number(value, places)
        return f"+{text}" if value is not None and value > 0 and text.strip(f"0.{THIN}") else text

    def interval(self, low: float | None, high: float | None, places: int) -> str:
        """Return both ends: "1.24 to 1.38"; a dash without an interval."""
        if low is None and high is None:
            return NOTHING
        ends = ("∞" if end is None else self.number(end, places) for end in (low, high))
        return " to ".join(ends)

    def places(self, low: float | None, high: float | None, value: float | None = None) -> int:
        """Decimals that the interval can carry: two figures of half its width; without one, four of the value."""
        half = 0.0 if low is None or high is None else (high - low) / 2 * self.factor
        if half > 0:
            return max(0, min(6, 1 - math.floor(math.log10(half))))
        return decimals(abs(value or 0.0) * self.factor / 100) if value else 0


def title(row: dict[str, Any]) -> str:
    """Return device and quantity of a figure: "bridge over direct: latency"."""
    over = f" over {row['reference']}" if row["reference"] else ""
    leading = leading_of(row)
    what = leading.name if leading else f"{row['quantity']} {row['statistic']}"
    return f"{row['device']}{over}: {what}"


def conditions(row: dict[str, Any]) -> list[str]:
    """Return the conditions of a figure: "icmp", "64 B", "every 1 ms"."""
    leading = leading_of(row)
    parts = [leading.part] if leading and leading.part else []
    parts += [str(row["probe"])] if row["probe"] else []
    parts += [sizes(row)] if row["payload_bytes"] is not None or row["frame_bytes"] is not None else []
    parts += [pace(row)] if row["interval_ns"] else [beat(row)] if row["schedule"] else []
    parts += [f"to {row['to']}"] if row["to"] else []
    parts += [f"{row['senders']} senders"] if (row["senders"] or 1) > 1 else []
    parts += [f"{row['receivers']} other receivers"] if row["receivers"] else []
    parts += [f"load {row['load'] * 100:g} % {row['load_via'] or ''}".strip()] if row["load"] else []
    parts += [str(row["pipe"])] if row["pipe"] else []
    parts += [f"less {row['against']}"] if row["against"] else []
    parts += [f"{name} {row[name]}" for name in ("port", "node") if row[name] is not None]
    return parts + [f"{name.replace('_', ' ')} {row[name]}" for name in SETTINGS if row.get(name) is not None]


def label(row: dict[str, Any]) -> str:
    """Return a figure in words: "bridge over direct: latency, icmp, 64 B, every 1 ms"."""
    return ", ".join([title(row), *conditions(row)])


def shared_conditions(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the conditions that all figures have, which are printed only once."""
    if len(rows) < 2:
        return []
    several = [conditions(row) for row in rows]
    return [one for one in several[0] if all(one in other for other in several)]


def in_groups(things: Sequence[T], row_of: Callable[[T], dict[str, Any]]) -> list[list[T]]:
    """Return the things grouped by heading, in the order of the leading figures."""
    groups: dict[tuple[str, str], list[T]] = {}
    for thing in sorted(things, key=lambda one: place_of(row_of(one))):
        row = row_of(thing)
        groups.setdefault((title(row), row["unit"]), []).append(thing)
    return list(groups.values())


def pace(row: dict[str, Any]) -> str:
    """Return the rate of packets: "every 1 ms", "Poisson, 0.5 ms on average"."""
    ms = f"{row['interval_ns'] / 1e6:g} ms"
    return f"Poisson, {ms} on average" if row["schedule"] == "poisson" else f"every {ms}"


def beat(row: dict[str, Any]) -> str:
    """Return the schedule of a figure without an interval: "poisson at 50 % of the throughput", "flood"."""
    share = row["rate_share"]
    return str(row["schedule"]).replace("-", " ") + ("" if share is None else f" at {percent(share)} of the throughput")


def sizes(row: dict[str, Any]) -> str:
    """Return the frame size of a stream; for probes the user data of requests, and of responses if different.

    Of ICMP it is what plans say, header and data: `icmp_bytes`.
    """
    if row.get("engine") and row.get("frame_bytes"):
        return f"frames of {row['frame_bytes']} B"
    there, back = row["payload_bytes"], row["response_payload_bytes"]
    if row.get("icmp_bytes") and back in {None, there}:
        return f"{row['icmp_bytes']} B of ICMP"
    return f"{there} B" if back in {None, there} else f"{there} B for {back} B"


def columns(header: Sequence[str], rows: Sequence[Sequence[str] | str], width: int) -> list[str]:
    """Lines of a table: the first cell to the left, the others to the right; a row that is one text is a heading."""
    cells = [row for row in rows if not isinstance(row, str)]
    widths = [max(len(one[place]) for one in (header, *cells)) for place in range(len(header))]
    first = width - sum(widths[1:]) - len(GAP) * (len(header) - 1)
    widths[0] = max(0, min(widths[0], first))
    lines: list[str] = []
    for row in (header, *rows):
        if isinstance(row, str):
            lines += ["", *folded(row, width)]
            continue
        name, *values = row
        if len(name) > widths[0]:
            lines += folded(name, width)
            name = ""
        right = GAP.join(value.rjust(size) for value, size in zip(values, widths[1:], strict=True))
        lines.append(f"{name.ljust(widths[0])}{GAP}{right}".rstrip())
    return lines


def folded(text: str, width: int) -> list[str]:
    """Return a text in lines of limited width, broken between words; later ones are indented by two more."""
    indent = len(text) - len(text.lstrip())
    lines, line = [], " " * indent
    for word in text.split():
        if len(line) + len(word) + 1 > width and line.strip():
            lines.append(line)
            line = " " * (indent + 2)
        line += word if not line.strip() else f" {word}"
    return [*lines, line]


def clipped(text: str, width: int) -> str:
    """Return a text cut to a width, with an ellipsis if it is longer."""
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"
