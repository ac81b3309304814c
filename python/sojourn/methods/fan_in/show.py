"""The report of "fan-in": widths of delays, total throughput and fairness against the number of senders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.report.charts import Axis, Lines
from sojourn.report.numbers import fixed
from sojourn.report.pacing import departures
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays, rates
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import along, factor, figure, rows_over, sample
from sojourn.report.streams.words import words

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Table

WIDTHS = {"sd": "standard deviation", "iqr": "between quartiles", "p99-p1": "p99 − p1"}
SENDERS = Axis("Senders", zero=True, whole=True)


def widths(run: Run) -> Table:
    """Widths, total rate and fairness by number of senders."""
    measures = (
        *(Measure("width", name, title, "Width of the delays") for name, title in
          (("sd", "Std dev"), ("iqr", "Quartiles"), ("p99-p1", "p99 − p1"))),
        Measure("throughput_pps", "mean", "Together", "Rate", limit=True),
        Measure("throughput_bps", "mean", "Bits", "Rate", interval=False, limit=True),
        Measure("fairness", "jain", "Jain's fairness"),
        Measure("loss_ratio", "ratio", "Lost", interval=False),
    )  # fmt: skip
    note = (
        "Widths are within a trial, of the first sender's frames: an offset of clocks is in none of them. Fairness: "
        "1 where "
        "all senders get the same, 1/n where one gets all."
    )
    return measured(
        run, Ask("widths", "Width, throughput and fairness by number of senders", measures, note, clock=True)
    )


def width_over_senders(run: Run) -> Figure | None:
    """The widths against the number of senders."""
    rows = rows_over(run, "width", tuple(WIDTHS), "senders")
    rows = rows.with_columns(pl.col("statistic").replace(WIDTHS).alias("series")).pipe(along)
    paced = rows.filter(pl.col("schedule") != "flood").drop_nulls("y").filter(pl.col("y") > 0)
    chart = Lines(SENDERS, Axis("Width of the delays (µs)", log=True), tuple(WIDTHS.values()))
    caption = (
        "How wide the one-way delays of the first sender spread within a trial, as others join at the same total rate."
    )
    return figure("width_over_senders", "Width of the delays", caption, paced, chart)


def rate_over_senders(run: Run) -> Figure | None:
    """What all senders together get through."""
    flood = pl.col("schedule") == "flood"
    rows = rows_over(run, "throughput_bps", rates.RATE, "senders", where=flood)
    rows = rows.drop_nulls("y").pipe(along)
    caption = f"All senders together; frames count with their FCS. {rates.SOFTWARE}"
    chart = Lines(SENDERS, Axis("Throughput (Mbit/s)", zero=True))
    return figure("rate_over_senders", "Total throughput", caption, rows, chart)


def fairness_over_senders(run: Run) -> Figure | None:
    """Jain's index against the number of senders."""
    rows = rows_over(run, "fairness", ("jain",), "senders").drop_nulls("y").pipe(along)
    caption = "Jain's index of the rates at which each sender's frames arrived: 1 where all get the same."
    return figure("fairness", "Fairness", caption, rows, Lines(SENDERS, Axis("Jain's fairness", zero=True)))


def shares(run: Run) -> Figure | None:
    """What each sender gets."""
    found = sample(run, "shares", "senders")
    if found.is_empty():
        return None
    rows = factor(found, "senders").with_columns(pl.col("received_pps").alias("y"))
    rows = rows.filter(pl.col("schedule") == "flood").with_columns(low=None, high=None)
    caption = "Every sender of every trial: the rate at which its frames arrived."
    chart = Lines(SENDERS, Axis("Rate of a sender (frames/s)", zero=True), joined=False)
    return figure("shares", "What each sender gets", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Widths with the fewest and the most senders, and fairness with the most."""
    found = []
    for device in [one for one in run.devices if one != "a/a"]:
        wide = run.rows("width", "sd", device=device).filter(pl.col("schedule") != "flood")
        smallest = wide.filter(pl.col("frame_bytes") == pl.col("frame_bytes").min())
        found += [_width_key(row) for row in delays.ends(smallest, "senders")]
        fair = delays.extreme(
            run.rows("fairness", "jain", device=device).filter(pl.col("schedule") == "flood"), "senders"
        )
        if fair and (fair["senders"] or 0) > 1:
            said = (f"{fair['senders']} senders, {fair['frame_bytes']} B, flood", "1: all get the same")
            found.append(Key(f"{device}: Jain's fairness", fixed(fair["estimate"], 3), "", said, device))
    return found


def _width_key(row: dict[str, object]) -> Key:
    many = f"{row['senders']} sender{'s' if int(str(row['senders'])) > 1 else ''}"
    return delays.key_of(row, f"{row['device']}: width with {many}", f"{row['frame_bytes']} B, standard deviation")


def how(run: Run) -> list[str]:
    """What is particular to it."""
    return words(
        run,
        "Several ports of host A send to one of host B, each a stream of its own; with regular streams the total "
        "rate is "
        "the same whatever their number, as floods each sends as fast as it can. All senders are one program on one "
        "core.",
    )


PARTS = Parts(
    tables=(widths, rates.rates, rates.tester, delays.delays, delays.conservation, delays.pacing),
    figures=(
        width_over_senders, rate_over_senders, fairness_over_senders, shares, delays.cdfs, delays.histograms,
        delays.over_time, departures,
    ),
    keys=keys,
    words=how,
    results=("widths",),
)  # fmt: skip
