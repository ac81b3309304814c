"""Ratios that can be compared with papers of other decades: each is within one machine, theirs or ours.

A ratio of ours has the bounds that its two intervals allow together. They are wider than a 95 % interval of the ratio
and need no further estimate. A ratio that this run cannot show is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.report.numbers import Shown
from sojourn.report.table import Column, Entry, Table, interval, number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from sojourn.report.run import Cell, Run

Result = dict[str, Any] | None
SMALL, LARGE = 64, 1480
SLOW_NS, FAST_NS = 20_000_000, 2_000_000


@dataclass(frozen=True)
class Shape:
    """A ratio that does not depend on the speed of the machine."""

    words: str
    source: str
    theirs: tuple[float, float]
    ours: Callable[[Run], tuple[Result, Result]]
    published: str


def shapes(run: Run) -> Table:
    """Every ratio of the published tables that the plan names, if this run can show it."""
    columns = (
        Column(("shape",), "Shape", numeric=False),
        Column(("source",), "Published in", numeric=False),
        Column(("published_low", "published_high"), "Theirs"),
        Column(("ours",), "Ours"),
        Column(("our_low", "our_high"), "within"),
    )
    named = [shape for shape in SHAPES if shape.published in run.published()]
    rows = [_shape_row(shape, shown) for shape in named if (shown := ratio(*shape.ours(run))) is not None]
    note = (
        "Ratios within one machine may be compared across decades. Our bounds are the smallest and the largest ratio "
        "that both 95 % CIs allow together; a published span is over the paper's tests and clock rates."
    )
    return Table("shapes", "Shapes: what may be compared", columns, tuple(rows), note)


def _shape_row(shape: Shape, ours: Shown) -> tuple[Entry, ...]:
    low, high = shape.theirs
    theirs = Entry(f"{low:g}" if low == high else f"{low:g}–{high:g}", (low, high))
    return (text(shape.words), text(shape.source), theirs, number(ours), interval(ours))


def _rtt_ratio(size: int) -> Callable[[Run], tuple[Result, Result]]:
    def found(run: Run) -> tuple[Result, Result]:
        cell = _cell(run, size, None)
        return _row(run, cell, "rtt", "bridge", None), _row(run, cell, "rtt", "direct", None)

    return found


def _size_ratio(run: Run) -> tuple[Result, Result]:
    rows = [_row(run, _cell(run, size, None), "device_latency", "bridge", "direct") for size in (LARGE, SMALL)]
    return rows[0], rows[1]


def _rate_ratio(size: int) -> Callable[[Run], tuple[Result, Result]]:
    def found(run: Run) -> tuple[Result, Result]:
        cells = (_cell(run, size, pace) for pace in (FAST_NS, SLOW_NS))
        fast, slow = (_row(run, cell, "device_latency", "bridge", "direct") for cell in cells)
        return fast, slow

    return found


def _cascade_ratio(quantity: str) -> Callable[[Run], tuple[Result, Result]]:
    def found(run: Run) -> tuple[Result, Result]:
        two, one = (_first(run.rows(quantity, device=name, reference="direct")) for name in ("bridge*2", "bridge"))
        return two, one

    return found


def _cell(run: Run, size: int, pace_ns: int | None) -> Cell | None:
    """Return our cell of this size and interval; without an interval, the fastest of this size."""
    same: Iterator[Cell] = (
        cell for cell in run.cells if cell.size_bytes == size and pace_ns in (None, cell.interval_ns)
    )
    return min(same, key=lambda cell: cell.interval_ns or math.inf, default=None)


def _row(run: Run, cell: Cell | None, quantity: str, device: str, reference: str | None) -> Result:
    return run.row(quantity, "mean", cell.number, device, reference=reference) if cell else None


def _first(rows: pl.DataFrame) -> Result:
    return next(rows.iter_rows(named=True), None)


def ratio(over: Result, under: Result) -> Shown | None:
    """Return one row's estimate over another's, with the bounds that both intervals allow; None if one is missing."""
    if over is None or under is None or not over["estimate"] or not under["estimate"]:
        return None
    low = high = None
    ends = [row[key] for row in (over, under) for key in ("ci_low", "ci_high")]
    if all(end is not None and end > 0 for end in ends):
        low, high = ends[0] / ends[3], ends[1] / ends[2]
    return Shown(over["estimate"] / under["estimate"], low, high, "")


SHAPES = (
    Shape("RTT with the bridge over without, 64 B", "Cricenti, tables 3, 5", (1.59, 1.78), _rtt_ratio(SMALL),
          "bridge2003_rtt"),
    Shape("RTT with the bridge over without, 1480 B", "Cricenti, tables 4, 6", (1.87, 1.92), _rtt_ratio(LARGE),
          "bridge2003_rtt"),
    Shape("Latency of the bridge, 1480 B over 64 B", "Cricenti, tables 3–6", (4.8, 6.15), _size_ratio,
          "bridge2003_rtt"),
    Shape("Latency of the bridge, 1480 B over 64 B", "Vanhonacker, tables 1–3", (5.98, 7.06), _size_ratio,
          "dummynet2003_rtt"),
    Shape("Latency of the bridge, 500/s over 50/s, 64 B", "Cricenti, tables 3, 5", (0.938, 0.968), _rate_ratio(SMALL),
          "bridge2003_rtt"),
    Shape("Latency of the bridge, 500/s over 50/s, 1480 B", "Cricenti, tables 4, 6", (0.997, 1.0), _rate_ratio(LARGE),
          "bridge2003_rtt"),
    Shape("Two switches over one: the constant", "ATLAS, §3.2.2", (2.04, 2.04), _cascade_ratio("latency_intercept"),
          "atlas2000_latency_fits"),
    Shape("Two switches over one: per byte", "ATLAS, §3.2.2", (2.0, 2.0), _cascade_ratio("latency_slope"),
          "atlas2000_latency_fits"),
)  # fmt: skip
