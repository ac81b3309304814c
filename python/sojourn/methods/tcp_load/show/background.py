"""What the traffic beside the measured flows got, by name; and tables without columns that say nothing in a run."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING

from sojourn.methods.tcp_load.show.rows import (
    ESTIMATE,
    FACTORS,
    WAYS,
    cells_of,
    factors_of,
    in_ms,
    measured,
    with_interval,
)
from sojourn.report.numbers import NOTHING
from sojourn.report.table import Column, Table, interval, number, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.report.run import Run

OPTIONAL = (("round_trips",), ("scenario",), ("background",))
"""Columns of factors that most runs do not have."""


def background(run: Run) -> Table:
    """Every part of the background in each direction."""
    columns = (
        *FACTORS,
        Column(("sent",), "Sent", numeric=False),
        Column(("part",), "Part of it", numeric=False),
        *measured("goodput", "Goodput", "Mbit/s"),
        *measured("used", "Of the rate", "%"),
        *measured("lost", "Lost (UDP)", "%"),
        *measured("retransmitted", "Retransmitted (TCP)", "%"),
        Column(("took_ms",), "A transfer takes", "ms"),
        Column(("took_low_ms", "took_high_ms"), "95 % CI", "ms"),
        Column(("took_p90_ms",), "p90", "ms"),
        Column(("delay_ms",), "A packet takes, median", "ms"),
        Column(("delay_low_ms", "delay_high_ms"), "95 % CI", "ms"),
        Column(("delay_p99_ms",), "p99", "ms"),
    )
    rows = []
    for factors, of in cells_of(run):
        names = [said for quantity, said in of if quantity == "background_goodput"]
        for said in sorted(names, key=lambda name: WAYS.index(name.split()[0])):
            way, _, part = said.partition(" ")
            entries = [*with_interval(of["background_goodput", said], "bit/s")]
            for quantity in ("utilisation", "lost", "retransmitted"):
                entries += with_interval(of.get((f"background_{quantity}", said)), "ratio")
            for quantity, names_of in (("completion", ("mean", "p90")), ("delay", ("p50", "p99"))):
                middle, high = (in_ms(of.get((f"background_{quantity}", f"{said} {name}")) or {}, ESTIMATE)
                                for name in names_of)  # fmt: skip
                entries += [number(middle), interval(middle), number(high)]
            rows.append((*factors_of(factors), text(way), text(part), *entries))
    note = (
        "Traffic beside the measured flows: it begins with them, and is in no other figure of flows. Goodput is user "
        "data under working conditions: of UDP what arrived, of long flows what was acknowledged, of transfers that of "
        "those that ended meanwhile. Of the rate: with headers, over the rate that the link was set to. Lost: packets, "
        "of those sent in a whole trial. A transfer takes from the beginning of its handshake until its sender knows "
        "that all has arrived and the connection is closed. A packet takes (UDP): from its sender's call until the "
        "receiver's kernel has it, one way, under working conditions; known where both have one clock."
    )
    table = Table("background", "Traffic beside the flows", columns, tuple(rows), note, wide=True, grouped=True)
    return without_empty(table, lambda column: column.numeric)


def without_empty(table: Table, among: Callable[[Column], bool]) -> Table:
    """The table without those columns among these in which no row says anything."""
    kept = [
        place
        for place, column in enumerate(table.columns)
        if not among(column) or any(row[place].text != NOTHING for row in table.rows)
    ]
    columns = tuple(table.columns[place] for place in kept)
    return replace(table, columns=columns, rows=tuple(tuple(row[place] for place in kept) for row in table.rows))


def trimmed(builder: Callable[[Run], Table]) -> Callable[[Run], Table]:
    """The table without the columns of round trips, a scenario and a background where no row has any."""

    @wraps(builder)
    def build(run: Run) -> Table:
        return without_empty(builder(run), lambda column: column.keys in OPTIONAL)

    return build
