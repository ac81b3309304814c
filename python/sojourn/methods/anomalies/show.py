"""The report of "anomalies": a table with period, size and chance, the folded periods, and the series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report import tables
from sojourn.report.charts import Axis, Lines
from sojourn.report.figures import cdfs, over_time
from sojourn.report.numbers import NOTHING, show
from sojourn.report.pacing import departures
from sojourn.report.parts import Key, Parts
from sojourn.report.paths import path_words
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.streams.points import NO_INTERVAL, figure, sample
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

TOLD_BY = {"count": "counted", "time": "timed", "either": "counted or timed"}
LEAST_P = 1e-9
BY_THRESHOLD = ("pulse", "ramp", "mode")
"""Kinds with a threshold on their chance instead of a p."""


def anomalies(run: Run) -> Table:
    """Return every anomaly, one row each."""
    found = run.samples("anomalies")
    rows = [] if found is None else [_row(run, row) for row in found.iter_rows(named=True)]
    columns = (
        Column(("device",), "Path", numeric=False),
        Column(("cell",), "Cell", numeric=False),
        Column(("kind",), "Anomaly", numeric=False),
        Column(("among_every",), "Of every", "n-th"),
        Column(("every",), "every", "probes", group="Period"),
        Column(("period_s",), "every", "s", group="Period"),
        Column(("told_by",), "which", numeric=False, group="Period"),
        Column(("size_us",), "Size", "µs", group="Round trip longer by"),
        Column(("size_low_us", "size_high_us"), "95 % CI", "µs", group="Round trip longer by"),
        Column(("duration_s",), "lasts", "s"),
        Column(("at_s",), "at", "s"),
        Column(("share_percent",), "Share", "%"),
        Column(("chance",), "Chance of noise", numeric=False),
        Column(("seen",), "seen in", group="Series"),
        Column(("series",), "of", group="Series"),
        Column(("on_direct",), "Direct link too", numeric=False),
    )
    note = (
        "Chance of noise: the probability that noise alone shows such an anomaly in one series. A period is “counted” "
        "where it has the same number of probes at several intervals, “timed” where it lasts as long at each. Of every "
        "n-th: only every n-th probe shows it. The size of a ramp is the increase at its end. A share is of the time, "
        "for a mode of the probes."
    )
    return Table("anomalies", "Anomalies of the delay", columns, tuple(rows), note, wide=True, grouped=True)


def _row(run: Run, row: dict[str, object]) -> tuple[Entry, ...]:
    cell = run.cell_of(row)
    size = show(row["size_ns"], row["low_ns"], row["high_ns"], "ns")  # type: ignore[arg-type]
    share = None if row["share"] is None else 100 * float(row["share"])  # type: ignore[arg-type]
    return (
        text(str(row["device"]), str(row["device"])),
        text(cell.short if cell else NOTHING),
        text(str(row["kind"])),
        whole(row["among"]) if row["among"] else Entry(NOTHING),  # type: ignore[arg-type]
        whole(row["every"]) if row["every"] else Entry(NOTHING),  # type: ignore[arg-type]
        _figures(row["seconds"]),
        text(TOLD_BY.get(str(row["told_by"]), NOTHING)),
        number(size),
        interval(size),
        _figures(row["duration_s"]),
        _figures(row["at_s"]),
        _figures(share),
        _chance(row),
        whole(row["seen"]),  # type: ignore[arg-type]
        whole(row["series"]),  # type: ignore[arg-type]
        text("yes" if row["on_direct"] else "no"),
    )


def _figures(value: object) -> Entry:
    return Entry(NOTHING) if value is None else Entry(f"{value:.4g}", (value,))  # type: ignore[arg-type]


def _chance(row: dict[str, object]) -> Entry:
    """Return the chance; for kinds searched with a threshold, the threshold; nothing where it is unknown."""
    if row["p"] is None:
        return Entry(NOTHING)
    p = float(row["p"])  # type: ignore[arg-type]
    if row["kind"] in BY_THRESHOLD:
        return Entry(f"below {p:.0e}", (p,))
    return Entry("below 10⁻⁹" if p < LEAST_P else f"{p:.0e}", (p,))


def folded(run: Run) -> Figure | None:
    """Return the delay over the position in each period."""
    found = sample(run, "anomaly_profiles")
    if found.is_empty():
        return None
    rows = found.select(
        pl.concat_str(pl.col("name"), pl.lit(", "), pl.col("cell")).alias("cell"),
        "device",
        "x",
        (pl.col("excess_ns") / 1e3).round_sig_figs(4).alias("y"),
        *NO_INTERVAL,
    )
    caption = (
        "The mean round trip minus the median of its series, over the position in the period: in probes where every "
        "n-th probe is slow, else in seconds."
    )
    chart = Lines(Axis("Position in the period (probes, or s)"), Axis("Round trip minus the median (µs)"))
    return figure("anomaly_profiles", "The delay within each period", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return each anomaly that most series of a device show and the direct link does not."""
    found = run.samples("anomalies")
    if found is None:
        return []
    told = (pl.col("kind") == "step") | (2 * pl.col("seen") > pl.col("series"))
    own = found.filter(~pl.col("on_direct"), pl.col("device") != "direct", told)
    keys = []
    for row in own.iter_rows(named=True):
        size, cell = show(row["size_ns"], row["low_ns"], row["high_ns"], "ns"), run.cell_of(row)
        period = (
            f"every {row['every']} probes"
            if row["every"]
            else f"every {row['seconds']:.4g} s"
            if row["seconds"]
            else ""
        )
        lines = (*size.told, period, cell.short if cell and len(run.cells) > 1 else "")
        what = f"{row['device']}: {row['kind']}"
        keys.append(Key(what, size.text, size.unit, tuple(line for line in lines if line), row["device"]))
    return keys


def words(run: Run) -> list[str]:
    """Return how it was measured."""
    clock, stamps = clock_and_stamps(run, "rtt")
    return [*path_words(run), *(line.format(clock=clock, stamps=stamps) for line in METHOD)]


METHOD = (
    (
        "Each path is probed at regular times in long series without a pause, the direct link as well: an anomaly of "
        "the direct link comes from the machine. Every series is searched by itself."
    ),
    (
        "Every n-th probe: the ranks of the delays, minus their running median, are folded at every period of up to "
        "1,000 probes. Periods in time: the spectral power of the slow probes at each frequency, compared with that of "
        "slow probes at random times; in a ramp the delay rises. Steps: the best split of the medians of bins, where "
        "the level changes by far more than elsewhere in the series, so that slow noise does not count as a step."
    ),
    "All times are of one clock: {clock}. Departures and arrivals have timestamps of {stamps}.",
)

PARTS = Parts(
    tables=(anomalies, tables.rtt, tables.tails, tables.conservation, tables.departures),
    figures=(folded, over_time, cdfs, departures),
    keys=keys,
    words=words,
    results=("anomalies",),
    has_round_trips=True,
)
