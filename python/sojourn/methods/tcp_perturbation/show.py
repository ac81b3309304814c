"""The report of "tcp-perturbation": the behaviour of TCP with the log of its state, and without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.charts import Axis, Intervals, Lines
from sojourn.report.numbers import as_written, fixed, show
from sojourn.report.parts import Key, Parts
from sojourn.report.streams.points import NO_INTERVAL, figure
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

SETTINGS = {"off": "without the log", "off again": "without it again", "on": "with the log"}
OBSERVABLES = {
    "snd_cwnd": ("congestion window", "segments", 1.0),
    "srtt_us": ("smoothed round-trip time", "ms", 1e-3),
    "delivery_rate_bps": ("delivery rate", "Mbit/s", 1e-6),
    "throughput_bps": ("throughput", "Mbit/s", 1e-6),
    "retransmitted": ("retransmitted segments", "1/s", 1.0),
    "window_collapses": ("collapses of the congestion window", "1/s", 1.0),
}
SINGLE = ("throughput_bps", "retransmitted", "window_collapses")
"""The observables with one value for each trial."""
STATISTICS = {"median": "median", "p95": "p95"}


def effects(run: Run) -> Table:
    """Return the table of every observable's change, with the log and in the control."""
    found = run.samples("effects")
    columns = (
        Column(("cell",), "Cell", numeric=False),
        Column(("setting",), "Setting", numeric=False),
        Column(("observable",), "Observable", numeric=False),
        Column(("without", "unit"), "Without the log"),
        Column(("change_percent",), "Change", "%"),
        Column(("change_low_percent", "change_high_percent"), "95 % CI", "%"),
        Column(("q",), "q"),
        Column(("smallest_percent",), "Smallest change detected", "%"),
        Column(("kolmogorov",), "Kolmogorov's distance", group="Distributions"),
        Column(("p",), "p", group="Distributions"),
        Column(("p_adjusted",), "adjusted p", group="Distributions"),
        Column(("rounds",), "Rounds"),
    )
    rows = tuple(_row(one) for one in (found.iter_rows(named=True) if found is not None else ()))
    return Table("effects", "Changes of TCP's behaviour", columns, rows, NOTE, wide=True, grouped=True)


NOTE = (
    "Change: with the setting minus without the log, of each trial's median or 95th percentile; Hodges and Lehmann's "
    "estimate over rounds with its exact interval, or over beds the mean with Student's, relative to the median "
    "without the log, or to the mean where that median is zero. A window has collapsed at 2 segments or fewer. "
    "No value can fall by more than 100 %, so intervals end there. "
    "q: of the signed-rank test of the change, over several beds of Student's, false discovery rate "
    "over all changes of the setting. Smallest change detected: "
    "a change of this size would be significant in four of five such runs (the power is 80 %). p: of the energy "
    "distance between the pooled distributions (of the mean difference where a trial has one number), by a sign-flip "
    "permutation test with rounds as units. Adjusted p: for the number of tests (Holm)."
)


def _row(one: dict[str, Any]) -> tuple[Entry, ...]:
    what, unit, factor = OBSERVABLES[one["observable"]]
    level = one["without"] * factor
    change, least = show(one["change"], one["low"], one["high"], "ratio"), show(one["smallest"], None, None, "ratio")
    whole_curve = one["statistic"] == "median"
    said = what if one["observable"] in SINGLE else f"{what}, {STATISTICS[one['statistic']]}"
    return (
        text(one["cell"]),
        text(SETTINGS[one["against"]], SETTINGS[one["against"]]),
        text(said),
        Entry(f"{fixed(level, 1 if level >= 10 else 2)} {unit}", (level, unit)),
        number(change),
        interval(change),
        _chance(one["q"]),
        Entry(fixed(least.value, 1), (least.value,)),
        number(show(one["kolmogorov"] if whole_curve else None, None, None, "1")),
        _chance(one["p"] if whole_curve else None),
        _chance(one["p_adjusted"] if whole_curve else None),
        whole(one["rounds"]),
    )


def _chance(value: float | None) -> Entry:
    return Entry("–" if value is None else f"{value:.2g}", (value,))


def changes(run: Run) -> Figure | None:
    """Return the figure of changes with their intervals, including the control."""
    found = run.samples("effects")
    if found is None or found.is_empty():
        return None
    names = {key: words for key, (words, _, _) in OBSERVABLES.items()}
    single = pl.col("observable").is_in(SINGLE)
    said = pl.col("observable").replace(names)
    name = pl.when(single).then(said).otherwise(pl.format("{}, {}", said, pl.col("statistic").replace(STATISTICS)))
    rows = found.with_columns(
        name.alias("name"),
        pl.col("against").replace(SETTINGS).alias("device"),
        *((pl.col(key) * 100).alias(to) for to, key in (("x", "change"), ("low", "low"), ("high", "high"))),
    )
    order = tuple(dict.fromkeys(rows["name"].to_list()))
    caption = (
        f"Change relative to connections without the log, over {_units(run)}, with its 95 % CI. “Without it again” is "
        "the control: its true change is zero."
    )
    return figure("changes", "Changes of TCP's behaviour", caption, rows, Intervals("Change (%)", order), columns=1)


def distributions(run: Run) -> Figure | None:
    """Return the figure of the distributions of window, round-trip time and delivery rate, by setting."""
    found = run.samples("distributions")
    if found is None or found.is_empty():
        return None
    pieces = []
    for name, (words, unit, factor) in OBSERVABLES.items():
        own = found.filter((pl.col("observable") == name) & (pl.col("share").is_between(0.005, 0.995)))
        several = own["cell"].n_unique() > 1 or found["cell"].n_unique() > 1
        head = f"{words} ({unit})"
        cell = pl.format("{}: {}", pl.lit(head), "cell") if several else pl.lit(head)
        pieces.append(own.with_columns(x=pl.col("value") * factor, cell=cell))
    rows = pl.concat(pieces).with_columns(
        *NO_INTERVAL,
        y=pl.col("share") * 100,
        role=pl.lit("fit"),
        device=pl.col("setting").replace(SETTINGS),
    )
    caption = (
        "Each curve is the mean of its trials' distributions, quantile by quantile. Where the curve with the log is no "
        "farther from the other two curves than these are from each other, the log has no visible effect."
    )
    chart = Lines(Axis("Reading, in the unit above"), Axis("Readings below (%)", zero=True))
    return figure("distributions", "Distributions with the log and without", caption, rows, chart)


def rounds(run: Run) -> Figure | None:
    """Return the figure of each trial's throughput over the rounds."""
    found = run.samples("summaries")
    if found is None or found.is_empty():
        return None
    rows = found.filter(pl.col("observable") == "throughput_bps").with_columns(
        *NO_INTERVAL,
        x=pl.col("round").cast(pl.Float64) + 1,
        y=pl.col("value") / 1e6,
        role=pl.lit("point"),
        device=pl.col("setting").replace(SETTINGS),
    )
    caption = (
        "One point for each trial. Variation that all three settings share within a round cancels in the comparison."
    )
    chart = Lines(Axis("Round", whole=True), Axis("Throughput (Mbit/s)"), joined=False)
    return figure("rounds", "Throughput, trial by trial", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return the changes of the three main observables, in the cell with the largest smallest detectable change."""
    found = run.samples("effects")
    if found is None or found.is_empty():
        return []
    keys_ = []
    for name in ("throughput_bps", "snd_cwnd", "srtt_us"):
        own = found.filter(
            (pl.col("observable") == name) & (pl.col("against") == "on") & (pl.col("statistic") == "median")
        )
        if own.is_empty():
            continue
        one = own.sort("smallest", descending=True).row(0, named=True)
        shown = show(one["change"], one["low"], one["high"], "ratio")
        least = show(one["smallest"], None, None, "ratio")
        lines = (f"95 % CI {shown.interval}", f"smallest change detected: {fixed(least.value, 1)} %", one["cell"])
        keys_.append(Key(f"With the log: {OBSERVABLES[name][0]}", shown.text, "%", lines, SETTINGS["on"]))
    return keys_


def how(run: Run) -> list[str]:
    """Return how it was measured."""
    plan = run.plan.get("perturbation", {})
    return [
        (
            "In each round every cell is measured three times in a random order: without the log, without it again, "
            f"and with it at the sender (sampling 1 in {plan.get('packets_per_log', 1)}). The emulator is started anew "
            "for each trial, from the same seed."
        ),
        (
            f"The sending application reads TCP_INFO every {as_written(plan.get('read_every'))} in all three settings; "
            f"readings in the first {as_written(plan.get('skip'))} of a trial are left out."
        ),
        (
            "The unit is the trial, because readings within one depend on each other: distributions are compared over "
            f"flips of the settings of whole rounds, and the interval of a change is over {_units(run)}."
        ),
    ]


def _units(run: Run) -> str:
    """Return the units over which intervals are calculated."""
    return "beds" if run.sessions > 1 else "rounds"


PARTS = Parts(
    tables=(effects,),
    figures=(changes, distributions, rounds),
    keys=keys,
    words=how,
    results=("effects",),
)
