"""Published figures of bridge-2003 and linux-bridge-2003 (timestamps, delays between two taps) with this run's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.numbers import Shown, show
from sojourn.report.published import NOTE, read_published
from sojourn.report.table import Column, Table, interval, number, printed, text
from sojourn.report.tables import shown_of

if TYPE_CHECKING:
    from sojourn.report.parts import Layout
    from sojourn.report.run import Cell, Run

BRIDGE = "bridge"
STAMPS = {"tap_interval": "tap on the bridge", "departure_interval": "sender", "tap_interval_error": "tap less sender"}
STATEMENTS = {"minimum delay about": None, "most packets from": 0.1, "most packets to": 0.9}
"""A statement of the paper, and the share of this run's packets with less delay; None: the least delay."""

TITLES = {
    "bridge2003_timestamping": "Times between frames by timestamps: Cricenti 2003, table 1, beside this run",
    "linuxbridge2003_statements": "Delay between two taps: linux-bridge-2003, section 3.1, beside this run",
}


def timestamps_table(run: Run, name: str) -> Table:
    """Return bridge-2003 table 1: times between frames by a capture's timestamps; this run's by those of the sender,
    too."""
    columns = (
        Column(("cpu_mhz",), "Clock", "MHz", group="Published"),
        *(Column((f"published_{key}_us",), title, "µs", group="Published") for key, title in MEASURES.items()),
        Column(("stamps",), "Stamps", numeric=False, group="This run"),
        Column(("our_interval_us",), "asked", "µs", group="This run"),
        *(Column((f"our_{key}_us",), title, "µs", group="This run") for key, title in MEASURES.items()),
        Column(("our_sd_low_us", "our_sd_high_us"), "95 % CI of the SD", "µs", group="This run"),
    )
    rows = []
    for row in read_published(name):
        theirs = (printed(row["cpu_mhz"]), *(printed(row[f"{THEIRS[key]}_us"]) for key in MEASURES))
        cell = _nearest(run, float(row["expected_us"]) * 1000)
        for quantity, title in STAMPS.items():
            ours = {key: _shown(run, cell, quantity, key) for key in MEASURES}
            asked = show(cell.interval_ns if cell else None, None, None, "ns")
            figures = [number(Shown(one.value, None, None, one.unit)) for one in ours.values()]
            rows.append((*theirs, text(title), number(asked), *figures, interval(ours["sd"])))
    note = (
        f"{NOTE} The paper's frames left a SmartBits, so the spread that it saw is the tap's. Ours leave a program: "
        "the tap's is at most that of the difference, frame by frame, between its stamps and the sender's."
    )
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), note, wide=True)


def statements_table(run: Run, name: str) -> Table:
    """Return linux-bridge-2003 section 3.1: the text's statements on delays in the plain bridge."""
    columns = (
        Column(("payload_bytes",), "Payload", "B"),
        Column(("statement",), "Statement", numeric=False, group="Published"),
        Column(("published_us",), "delay", "µs", group="Published"),
        Column(("figure",), "figure", numeric=False, group="This run"),
        Column(("our_us",), "delay", "µs", group="This run"),
    )
    rows = []
    for row in read_published(name):
        share = STATEMENTS[row["statement"]]
        cell = _slowest(run, int(row["payload_bytes"]))
        figure = "minimum" if share is None else f"{100 * share:.0f}th percentile"
        ours = _shown(run, cell, "delay_between_taps", "min") if share is None else _percentile(run, cell, share)
        theirs = (printed(row["payload_bytes"]), text(row["statement"]), printed(row["value_us"]))
        rows.append((*theirs, text(figure), number(ours)))
    note = f"{NOTE} Ours is of the plain bridge at the lowest rate of the run; “most packets” is taken as four fifths."
    return Table(f"published_{name}", TITLES[name], columns, tuple(rows), note)


MEASURES = {"mean": "mean", "p50": "median", "sd": "SD", "min": "least", "max": "most"}
THEIRS = {"mean": "mean", "p50": "median", "sd": "std", "min": "min", "max": "max"}
PUBLISHED: dict[str, Layout] = {
    "bridge2003_timestamping": timestamps_table,
    "linuxbridge2003_statements": statements_table,
}


def _nearest(run: Run, interval_ns: float) -> Cell | None:
    known = [cell for cell in run.cells if cell.interval_ns]
    return min(known, key=lambda cell: abs((cell.interval_ns or 1) / interval_ns - 1), default=None)


def _slowest(run: Run, payload: int) -> Cell | None:
    """Return the cell of the size with the lowest rate."""
    rows = run.rows("delay_between_taps", "min", device=BRIDGE).filter(pl.col("payload_bytes") == payload)
    numbers = rows.sort("rate_pps").get_column("cell").to_list() if rows.height else []
    return next((cell for cell in run.cells if cell.number in numbers[:1]), None)


def _shown(run: Run, cell: Cell | None, quantity: str, statistic: str) -> Shown:
    row: dict[str, Any] | None = run.row(quantity, statistic, cell.number, BRIDGE) if cell else None
    return shown_of(row) if row else show(None, None, None, "ns")


def _percentile(run: Run, cell: Cell | None, share: float) -> Shown:
    curves = run.samples("tap_quantiles")
    if cell is None or curves is None or curves.is_empty():
        return show(None, None, None, "ns")
    mine = curves.filter((pl.col("cell") == cell.number) & (pl.col("device") == BRIDGE))
    near = mine.sort((pl.col("exceedance") - (1 - share)).abs()).get_column("delay_ns").head(1).to_list()
    return show(near[0] if near else None, None, None, "ns")
