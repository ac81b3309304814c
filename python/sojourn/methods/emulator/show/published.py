"""The papers' tables of dummynet with this emulator's results: delays, delays over the time between packets, losses.

The papers measured round trips through two pipes, one each way: their one-way delay is half of the round trip minus the
direct path's. The delays here are one way, from the stream's timestamps, through one pipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.numbers import NOTHING, Shown, duration, show
from sojourn.report.published import read_published
from sojourn.report.table import Column, Entry, Table, interval, number, printed
from sojourn.report.tables import shown_of

if TYPE_CHECKING:
    from sojourn.report.run import Run

NOTE = (
    "Theirs are pings through two pipes, with a clock of 1000 ticks a second; ours is the one-way delay through one "
    "pipe, minus the direct path's. For configured delays of 1 ms and more, each of theirs is 0.1 to 0.4 ms too short, "
    "and their round trips spread over one tick."
)
LOSS_NOTE = (
    "Error: measured minus configured loss, in percentage points. Theirs were printed without intervals; ours are "
    "Clopper and Pearson's, of which one in twenty excludes the configured loss by chance. Our cell is the one whose "
    "time between packets is nearest to theirs."
)
NONE = show(None, None, None, "ns")


@dataclass(frozen=True)
class Ours:
    """This run's cells with a constant delay or a configured loss, by path; may be empty."""

    run: Run
    pipes: pl.DataFrame

    @classmethod
    def of(cls, run: Run) -> Ours:
        """Return the cells of this run."""
        pipes = run.samples("pipes")
        return cls(run, pl.DataFrame() if pipes is None else pipes)

    def at(self, column: str, value: float, interval_ns: float | None = None) -> dict[str, Any] | None:
        """Return the cell with this configured value (to a thousandth), at the interval nearest to the paper's by
        ratio."""
        if self.pipes.is_empty():
            return None
        near = (pl.col(column) - value).abs() <= 1e-3 * max(value, 1e-9)
        plain = pl.col("jitter").is_null() & pl.col("rate_bps").is_null()
        found = self.pipes.filter(near & plain).drop_nulls("interval_ns")
        if found.is_empty():
            return None
        if interval_ns is None:
            return found.sort("interval_ns", descending=True).row(0, named=True)
        nearest = (pl.col("interval_ns").cast(pl.Float64) / interval_ns).log().abs()
        return found.sort(nearest, maintain_order=True).row(0, named=True)

    def figure(self, cell: dict[str, Any] | None, quantity: str, statistic: str) -> Shown:
        """Return a figure of that cell."""
        if cell is None:
            return NONE
        rows = self.run.rows(quantity, statistic, device=str(cell["device"])).filter(pl.col("cell") == cell["cell"])
        row = next(rows.iter_rows(named=True), None)
        return shown_of(row) if row else NONE


def delay_table(run: Run, name: str) -> Table:
    """Return dummynet's delays (minimum, average, maximum, spread, one-way delay), this run's, and both errors."""
    rows = read_published(name)
    ours = Ours.of(run)
    spread = (("min", "Min"), ("mean", "Average"), ("max", "Max"), ("sd", "Std dev"))
    columns = (
        Column(("configured_delay_ms",), "Configured", "ms"),
        *(Column((f"published_rtt_{key}_ms",), heading, "ms", group="Theirs: round trip")
          for key, heading in spread),
        Column(("published_one_way_us",), "One way", "µs", group="Theirs"),
        Column(("published_error_us",), "Error", "µs", group="Theirs"),
        *(Column((f"our_{key}_us",), heading, "µs", group="Ours: one way") for key, heading in spread),
        Column(("our_error_us",), "Error", "µs", group="Ours"),
        Column(("our_error_low_us", "our_error_high_us"), "95 % CI", "µs", group="Ours"),
    )  # fmt: skip
    body = []
    for row in rows:
        configured = float(row["configured_delay_ms"])
        cell = ours.at("delay_ns", configured * 1e6)
        one_way = float(row["one_way_delay_us"]) if "one_way_delay_us" in row else float(row["one_way_delay_ms"]) * 1e3
        error = ours.figure(cell, "emulated_delay_error", "mean")
        theirs = [printed(row[f"rtt_{key}_ms"]) for key in ("min", "avg", "max", "std")]
        mine = [number(ours.figure(cell, "emulated_delay", key)) for key, _ in spread]
        off = one_way - configured * 1e3
        body.append(
            (printed(row["configured_delay_ms"]), *theirs, _given(one_way), _given(off), *mine, number(error),
             interval(error))
        )  # fmt: skip
    return Table(f"published_{name}", TITLES[name], columns, tuple(body), NOTE, wide=True)


def interval_table(run: Run, name: str) -> Table:
    """Return dummynet's delay at every rate with this run's at the nearest interval."""
    rows = read_published(name)
    ours = Ours.of(run)
    columns = (
        Column(("configured_delay_ms",), "Configured", "ms"),
        Column(("rate_pps",), "Packets", "1/s", group="Theirs"),
        Column(("published_delay_ms",), "Delay", "ms", group="Theirs"),
        Column(("our_interval_ms",), "Time between packets", numeric=False, group="Ours"),
        Column(("our_delay_us",), "Mean delay", "µs", group="Ours"),
        Column(("our_error_us",), "Error", "µs", group="Ours"),
        Column(("our_error_low_us", "our_error_high_us"), "95 % CI", "µs", group="Ours"),
    )
    body = []
    for row in rows:
        cell = ours.at("delay_ns", float(row["configured_delay_ms"]) * 1e6, 1e9 / float(row["rate_pps"]))
        error = ours.figure(cell, "emulated_delay_error", "mean")
        pace = Entry(duration(cell["interval_ns"]), (cell["interval_ns"] / 1e6,)) if cell else Entry(NOTHING)
        mean = number(ours.figure(cell, "emulated_delay", "mean"))
        theirs = (printed(row[key]) for key in ("configured_delay_ms", "rate_pps", "measured_delay_ms"))
        body.append((*theirs, pace, mean, number(error), interval(error)))
    return Table(f"published_{name}", TITLES[name], columns, tuple(body), NOTE, wide=True)


def loss_table(run: Run, name: str) -> Table:
    """Return dummynet's losses with this run's and its interval."""
    rows = read_published(name)
    ours = Ours.of(run)
    columns = (
        Column(("configured_loss_percent",), "Configured", "%"),
        Column(("interval_ms",), "Time between packets", "ms", group="Theirs"),
        Column(("published_loss_percent",), "Lost", "%", group="Theirs"),
        Column(("published_deviation_points",), "Error", "points", group="Theirs"),
        Column(("our_interval",), "Time between packets", numeric=False, group="Ours"),
        Column(("our_loss_percent",), "Lost", "%", group="Ours"),
        Column(("our_low_percent", "our_high_percent"), "95 % CI", "%", group="Ours"),
        Column(("our_deviation_points",), "Error", "points", group="Ours"),
        Column(("our_packets",), "Packets", group="Ours"),
    )
    body = []
    ranked = sorted(rows, key=lambda row: (float(row["configured_loss_pct"]), -float(row["packet_interval_ms"])))
    for row in ranked:
        share, gap = float(row["configured_loss_pct"]), float(row["packet_interval_ms"]) * 1e6
        cell = ours.at("configured_loss", share / 100, gap)
        shown = ours.figure(cell, "emulated_loss", "ratio")
        pace = Entry(duration(cell["interval_ns"]), (cell["interval_ns"] / 1e6,)) if cell else Entry(NOTHING)
        off = Entry(NOTHING) if shown.value is None else _given(shown.value - share, 2)
        theirs = (printed(row["packet_interval_ms"]), printed(row["measured_loss_pct"]))
        body.append(
            (printed(row["configured_loss_pct"]), *theirs, _given(float(row["measured_loss_pct"]) - share, 2), pace,
             number(shown), interval(shown), off, _packets(run, cell))
        )  # fmt: skip
    return Table(f"published_{name}", TITLES[name], columns, tuple(body), LOSS_NOTE, wide=True, grouped=True)


def _packets(run: Run, cell: dict[str, Any] | None) -> Entry:
    if cell is None:
        return Entry(NOTHING)
    rows = run.rows("emulated_loss", "ratio", device=str(cell["device"])).filter(pl.col("cell") == cell["cell"])
    found = rows["probes"].head(1).to_list()
    return Entry(f"{found[0]:,}".replace(",", "\u202f"), (found[0],)) if found else Entry(NOTHING)


def _given(value: float, places: int = 1) -> Entry:
    """Return a number computed from printed ones."""
    return Entry(f"{value:.{places}f}".replace("-", "\u2212"), (round(value, places),))


TITLES = {
    "dummynet2003_delay": "Delay: Vanhonacker 2003, table 5, beside this run",
    "bridge2003_dummynet_delay": "Delay: Cricenti 2003, table 8, beside this run",
    "dummynet2003_delay_vs_interval": "Delay over packet rate: Vanhonacker 2003, table 6, beside this run",
    "dummynet2003_loss": "Loss: Vanhonacker 2003, table 7, beside this run",
}
PUBLISHED = {
    "dummynet2003_delay": delay_table,
    "bridge2003_dummynet_delay": delay_table,
    "dummynet2003_delay_vs_interval": interval_table,
    "dummynet2003_loss": loss_table,
}
