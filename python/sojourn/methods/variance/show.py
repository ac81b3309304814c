"""The report of a study of variance: components of the nested design, then the share of each factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report import tables
from sojourn.report.charts import Intervals
from sojourn.report.parts import Key, Parts
from sojourn.report.sessions import session_machine
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.streams.points import figure, several
from sojourn.report.table import Column, Entry, Table, interval, number, text, whole
from sojourn.report.tables import shown_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.report.figure import Figure
    from sojourn.report.run import Run

NESTED = {"bed": "beds", "start": "starts on one bed", "repeat": "rounds of one start"}
WHOLE = {"bed_value": "all redrawn", "rest": "what is left with all held"}


def components(run: Run) -> Table:
    """Return the table of how far beds, starts and rounds differ."""
    rows = [
        (*_measurand(row), text(NESTED[row["statistic"]]), *_sd(row), whole(row["n"]))
        for row in _rows(run, "variance_component") if row["statistic"] in NESTED
    ]  # fmt: skip
    note = (
        "Standard deviations between beds, between starts on one bed, and between rounds of one start, over beds with "
        "all random choices made anew. Estimates are those of the analysis of variance, intervals are Ting's; 0: the "
        "variance is not estimated above zero."
    )
    head = (Column(("between",), "Between", numeric=False), *SD, Column(("beds",), "Beds"))
    return Table(
        "variance_components", "How far beds, starts and rounds differ", (*MEASURAND, *head), tuple(rows), note
    )


def carriers(run: Run) -> Table:
    """Return the table of the causes of the variance between beds."""
    shares = {(row["device"], row["reference"], row["statistic"]): row for row in _rows(run, "variance_share")}
    rows = []
    for row in _rows(run, "variance_component"):
        if row["statistic"] in NESTED:
            continue
        part = shares.get((row["device"], row["reference"], row["statistic"]))
        rows.append((*_measurand(row), text(WHOLE.get(row["statistic"], row["statistic"])), *_sd(row), *_share(part)))
    columns = (
        *MEASURAND,
        Column(("factor",), "Drawn anew", numeric=False),
        *SD,
        Column(("share",), "Part of the variance", "%"),
        Column(("share_low", "share_high"), "CI", "%"),
        Column(("significant",), "Significant", numeric=False),
    )
    note = (
        "A bed's value is the median of its rounds. Its variance is modelled as the sum of the parts of all factors "
        "and of the rest: time, memory of the kernel, starts, rounds. With more than three factors the rows are a "
        "fractional factorial design: a factor is confounded with interactions of two others, which are assumed to be "
        "zero. Intervals assume normal effects, except that a factor's begins at 0 unless the ranks of deviations find "
        "it significant. No interval: the rows contradict this model."
    )
    return Table("variance_carriers", "Causes of the variance between beds", columns, tuple(rows), note)


def shares(run: Run) -> Figure | None:
    """Return the figure of the share of each factor, a panel for each measurand."""
    caption = (
        "The part of the variance between beds that each factor causes, with 95 % CIs of the ratio. "
        "An interval that begins at 0: not significant. A point without a bar has no interval: the beds contradict the "
        "sum of parts. Parts are estimated one by one, so that they need not add up to 100 %. Rest: what is left with "
        "all factors held."
    )
    rows = _estimates(run, "variance_share", 100)
    chart = Intervals("Part of the variance between beds (%)", several(rows, "name"))
    return figure("shares", "Causes of the variance between beds", caption, rows, chart)


def deviations(run: Run) -> Figure | None:
    """Return the figure of the standard deviations between beds, starts and rounds, a panel for each measurand."""
    caption = (
        "Standard deviations between beds, between starts on one bed, and between rounds of one start, with 95 % "
        "intervals, over beds with all random choices made anew."
    )
    rows = _estimates(run, "variance_component", 1e-3).filter(pl.col("name").is_in(list(NESTED.values())))
    chart = Intervals("Standard deviation (µs)", tuple(NESTED.values()))
    return figure("deviations", "How far beds, starts and rounds differ", caption, rows, chart)


def _estimates(run: Run, quantity: str, unit: float) -> pl.DataFrame:
    """Return the rows of a quantity with a panel for each measurand, the rest behind the factors."""
    over = pl.format("{} over {}", "device", "reference")
    rows = run.rows(quantity).with_columns(
        pl.coalesce(over, pl.format("round trip over {}", "device")).alias("cell"),
        pl.col("statistic").replace(NESTED).alias("name"),
        *(
            (pl.col(key) * unit).alias(name)
            for name, key in (("x", "estimate"), ("low", "ci_low"), ("high", "ci_high"))
        ),
    )
    return rows.sort(pl.col("name") == "rest", maintain_order=True)


MEASURAND = (Column(("device",), "Of", numeric=False), Column(("reference",), "Over", numeric=False))
SD = (Column(("sd_us",), "Std dev", "µs"), Column(("sd_low_us", "sd_high_us"), "CI", "µs"))


def _rows(run: Run, quantity: str) -> Iterator[dict[str, Any]]:
    yield from run.rows(quantity).iter_rows(named=True)


def _measurand(row: dict[str, Any]) -> tuple[Entry, Entry]:
    return text(row["device"], row["device"]), text(row["reference"] or "round trip")


def _sd(row: dict[str, Any]) -> tuple[Entry, Entry]:
    shown = shown_of(row)
    return number(shown), interval(shown)


def _share(row: dict[str, Any] | None) -> tuple[Entry, Entry, Entry]:
    if row is None:
        return text("100"), text(""), text("")
    shown = shown_of(row | {"statistic": "ratio"})
    return number(shown), interval(shown), text("yes" if (row["ci_low"] or 0) > 0 else "no")


def keys(run: Run) -> list[Key]:
    """Return how far beds differ, for each measurand."""
    found = []
    for row in run.rows("variance_component", "bed").iter_rows(named=True):
        shown = shown_of(row)
        what = f"{row['device']} over {row['reference']}" if row["reference"] else f"round trip over {row['device']}"
        lines = (f"95 % CI {shown.interval} {shown.unit}", f"on {row['n']} beds")
        found.append(Key(f"Beds differ: {what}", shown.text, shown.unit, lines, row["device"]))
    return found


def words(run: Run) -> list[str]:
    """Return how it was measured."""
    clock, stamps = clock_and_stamps(run, "variance_component")
    return [line.format(clock=clock, stamps=stamps) for line in METHOD]


METHOD = (
    (
        "Each bed is made anew, and both ends are started several times on it. On some beds all random choices are "
        "made anew; on others some of them are held, and then equal on all beds that hold them. Some factors are on in "
        "half of the beds that do not hold them, and off on all others: idle processors that poll (idle), and receive "
        "packet steering to all cores (rps); so is each of [settings] that is among the factors."
    ),
    (
        "A round's value is computed from medians of blocks: a single probe delayed by other work would dominate the "
        "variance of means."
    ),
    "Rounds visit every path in one order and then in its mirror image; each bed has an order of its own.",
    "All times are of one clock: {clock}. Departures and arrivals have timestamps of {stamps}.",
)

PARTS = Parts(
    tables=(components, carriers, tables.departures, session_machine),
    figures=(shares, deviations),
    keys=keys,
    words=words,
    results=("variance_components", "variance_carriers"),
    has_round_trips=True,
)
