"""The report of "background": latency with other traffic, through the device and past it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Histogram, Lines
from sojourn.report.numbers import percent
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays
from sojourn.report.streams.measures import Ask, Measure, against, measured
from sojourn.report.streams.points import ESTIMATE, figure, sample, several, spans
from sojourn.report.streams.words import estimates, words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

SHIFTS = ("one_way_delay_shift", "rtt_shift")
LOADED = ("load", "load_via", "kind")
MEANINGS = {"round-trip": "round trip", "actual": "one way"}


def shifts(run: Run) -> Table:
    """Return the effect of load on latency: compared with no load, and through the device compared with past it."""
    measures = (
        Measure("one_way_delay_shift", "mean", "Mean", "One-way delay"),
        Measure("one_way_delay_shift", "p50", "Median", "One-way delay"),
        Measure("rtt_shift", "mean", "Mean", "Round trip"),
        Measure("rtt_shift", "p50", "Median", "Round trip"),
    )
    note = (
        "Minus no load: the effect on device and host. Minus the same load on a bypass path: the effect on the device "
        f"alone. Pairs of trials of one round; estimates are {estimates(run)}, of the trials' means or medians."
    )
    where = pl.col("against").is_not_null()
    return measured(run, Ask("shifts", "What load does to latency", measures, note, where, clock=True))


def round_trips(run: Run) -> Table:
    """Return the round trips at each load."""
    measures = (
        *(Measure("rtt", name, title, interval=name in ("mean", "p50"))
          for name, title in (("min", "Min"), ("mean", "Mean"), ("p50", "Median"), ("p90", "p90"), ("p99", "p99"))),
        Measure("modes", "count", "Modes", interval=False),
    )  # fmt: skip
    where = (pl.col("quantity") != "modes") | (pl.col("kind") == "request-response")
    note = (
        "Read on the requesting host's clock alone, so there is no clock error. A round trip includes the wake-ups of "
        "both programs, a one-way delay includes none."
    )
    return measured(run, Ask("rtt", "Round trips at each load", measures, note, where))


def modes(run: Run) -> Table:
    """Return the number of modes of each distribution."""
    measures = (Measure("modes", "count", "Modes", interval=False),)
    note = "Modes of the distribution of all frames of a cell together. The number of modes has no interval."
    return measured(run, Ask("modes", "Modes of the distributions", measures, note))


def histograms(run: Run) -> Figure | None:
    """Return histograms of latency at each load, by kind, size, path of the load and device."""
    found = sample(run, "delay_histograms", *_told(run))
    if found.is_empty():
        return None
    through = found.filter(pl.col("load_via").is_null() | (pl.col("load_via") == "through"))
    beside = found.filter(pl.col("load_via").is_null() | (pl.col("load_via") == "beside"))
    ways = [
        rows.with_columns(pl.lit(way).alias("way"))
        for rows, way in ((through, "load through"), (beside, "load beside"))
    ]
    several_ways = [rows for rows in ways if rows["load_via"].drop_nulls().len()]
    if not several_ways:
        return None
    kind = pl.col("measure").replace(MEANINGS)
    panel = pl.concat_str("device", "way", kind, "cell", separator=", ").str.strip_chars(", ")
    rows = delays.in_us(pl.concat(several_ways)).with_columns(
        panel.alias("cell"), pl.col("load").map_elements(_load, return_dtype=pl.String).alias("series")
    )
    order = tuple(dict.fromkeys(_load(one) for one in sorted(rows["load"].fill_null(0.0).unique().to_list())))
    caption = (
        "The same frames while a load runs through the device, and while it runs beside the device, where it costs the "
        "machine as much but does not cross the device. A change that only the load through the device makes is caused "
        "by the device."
    )
    chart = Histogram("Latency (µs)", order)
    return figure("load_histogram", "Latency at each load", caption, rows, chart)


def _told(run: Run) -> tuple[str, ...]:
    """Return the factors that a panel need not name: load, path and kind, and the pace if each kind has one."""
    paces = {(one.factors["kind"], one.factors["schedule"], one.interval_ns) for one in run.cells}
    one_each = len(paces) == len({kind for kind, *_ in paces})
    return (*LOADED, "schedule", "interval_ns") if one_each else LOADED


def _load(load: float | None) -> str:
    return f"load {percent(load)}" if load else "no load"


def shift_over_load(run: Run) -> Figure | None:
    """Return the change of latency over the load, a panel for each kind and subtracted cell."""
    found = sample(run, "shifts", *_told(run))
    if found.is_empty():
        return None
    mine = found.filter(pl.col("quantity").is_in(SHIFTS) & (pl.col("statistic") == "mean"))
    less = pl.col("against").map_elements(lambda one: f"less {against(one)}", return_dtype=pl.String)
    what = pl.col("quantity").replace({"one_way_delay_shift": "one way", "rtt_shift": "round trip"})
    rows = mine.with_columns(
        pl.concat_str(what, less, "cell", separator=", ").str.strip_chars(", ").alias("cell"),
        pl.format("load {}", pl.col("load_via").fill_null("through")).alias("series"),
        (pl.col("load") * 100).alias("x"),
        *spans(ESTIMATE, 1e-3),
    ).sort("cell", "series", "x", maintain_order=True)
    chart = Lines(
        Axis("Load (% of the device's throughput)", zero=True, most=100),
        Axis("Mean shift (µs)", zero=True),
        several(rows, "series"),
    )
    caption = (
        "What the load adds to mean latency. Minus no load: both ways of the load are shown, and the part that a load "
        "beside the device also adds comes from the machine. Bars are intervals over rounds."
    )
    return figure("shift_over_load", "Change of latency over the load", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return the device's own shift at the heaviest load, one way and round trip."""
    found = []
    for quantity, what in (("one_way_delay_shift", "one way"), ("rtt_shift", "to a round trip")):
        rows = run.rows(quantity, "mean", against="load_via=beside").filter(pl.col("device") != "a/a")
        for device in run.devices:
            worst = delays.extreme(rows.filter(pl.col("device") == device), "load")
            if worst:
                found.append(_shift_key(run, worst, what))
    return found + delays.added_keys(run)


def _shift_key(run: Run, row: dict[str, Any], what: str) -> Key:
    cell = run.cell_of(row)
    title = f"{percent(row['load'])} load through the {row['device']} adds, {what}"
    return delays.key_of(row, title, "minus the same load beside the device", cell.short if cell else "")


def how(run: Run) -> list[str]:
    """Return what is particular to this method's measurement."""
    loads = sorted({float(one) for one in run.results["load"].drop_nulls() if one})
    measured_ = f" This run measures {', '.join(percent(one) for one in loads)}." if loads else ""
    return words(
        run,
        "While the measured frames cross the device, other pairs of ports load it with a share of its measured "
        "throughput. For comparison the same load takes a bypass path beside the device, through a second device that "
        "the measured frames do not cross. What both loads change comes from the machine; the difference comes from "
        "the device." + measured_,
    )


PARTS = Parts(
    tables=(
        shifts,
        round_trips,
        modes,
        delays.added,
        delays.delays,
        delays.variation,
        delays.conservation,
        delays.pacing,
    ),
    figures=(histograms, shift_over_load, delays.cdfs, delays.over_time),
    keys=keys,
    words=how,
    results=("shifts",),
)
