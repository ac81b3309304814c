"""The report of "fan-in": delay spread, total throughput and fairness over the number of senders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.report.cells import cell_column, cell_entry
from sojourn.report.charts import Axis, Lines
from sojourn.report.numbers import NOTHING, fixed, show
from sojourn.report.pacing import departures
from sojourn.report.parts import Key, Parts
from sojourn.report.streams import delays, rates
from sojourn.report.streams.measures import Ask, Measure, measured
from sojourn.report.streams.points import along, factor, figure, rows_over, sample, spans
from sojourn.report.streams.words import words
from sojourn.report.table import Column, Table, interval, number, rounded, text, whole

if TYPE_CHECKING:
    from sojourn.report.figure import Figure
    from sojourn.report.run import Run
    from sojourn.report.table import Entry

SPREADS = {"sd": "standard deviation", "iqr": "p75 − p25", "p99-p1": "p99 − p1"}
LATER = "minus half an interval later or more"
BY_PHASE = ("delay_ns", "ci_low_ns", "ci_high_ns")
SENDERS = Axis("Senders", zero=True, whole=True)


def spreads(run: Run) -> Table:
    """Return delay spread, total rate and fairness by number of senders."""
    measures = (
        *(Measure("delay_spread", name, title, "Delay spread") for name, title in
          (("sd", "Std dev"), ("iqr", "p75 − p25"), ("p99-p1", "p99 − p1"))),
        Measure("throughput_pps", "mean", "Frames", "Total rate", limit=True),
        Measure("throughput_bps", "mean", "Bits", "Total rate", interval=False, limit=True),
        Measure("fairness", "jain", "Jain's fairness"),
        Measure("loss_ratio", "ratio", "Lost", interval=False),
    )  # fmt: skip
    note = (
        "Jain's fairness: 1 where all of n senders get the same rate, 1/n where one gets all. The total rate is "
        "measured from the first arrival of any sender to the last of any, so it is a little below the rate while all "
        "of them send."
    )
    if run.rows("delay_spread").height:
        note = (
            "The delay spread is that of the first sender's one-way delays within a trial, so it contains no clock "
            f"offset; the table of one-way delays has all frames of all senders and trials together. {note}"
        )
    title = "Delay spread, total rate and fairness by number of senders"
    return _without_one_sender(measured(run, Ask("delay_spreads", title, measures, note)))


def _without_one_sender(table: Table) -> Table:
    """Return the table without the fairness of a single sender, which is 1 by definition."""
    keys = [column.keys[0] for column in table.columns]
    fair = [place for place, key in enumerate(keys) if key.startswith("fairness")]
    senders = next((place for place, key in enumerate(table.columns[0].keys) if key == "senders"), None)

    def line(row: tuple[Entry, ...]) -> tuple[Entry, ...]:
        if senders is None or row[0].values[senders] != 1:
            return row
        return tuple(replace(entry, text=NOTHING) if place in fair else entry for place, entry in enumerate(row))

    return replace(table, rows=tuple(line(row) for row in table.rows))


def by_phase(run: Run) -> Table:
    """Return the mean delay of the first sender's frames in each bin of the phase."""
    columns: tuple[Column, ...] = (
        cell_column(run),
        Column(("device",), "Device", numeric=False),
        Column(("phase_percent",), "Phase", "% of the interval"),
        Column(("phase_us",), "Phase", "µs"),
        Column(("delay_mean_us",), "Mean", "µs", group="One-way delay"),
        Column(("delay_low_us", "delay_high_us"), "95 % CI", "µs", group="One-way delay"),
        Column(("expected_us",), "Expected", "µs", group="One-way delay"),
        Column(("frames",), "Frames"),
    )
    found = run.samples("delay_by_phase")
    names = {cell.number: cell.short for cell in run.cells}
    rows = [] if found is None else [_phase_row(run, names, row) for row in found.iter_rows(named=True)]
    if all(row[6].values[0] is None for row in rows):
        columns, rows = (*columns[:6], *columns[7:]), [(*row[:6], *row[7:]) for row in rows]
    title = "Delay by the phase between two regular streams"
    return Table("delay_by_phase", title, columns, tuple(rows), PHASE, wide=True, grouped=True)


PHASE = (
    "The phase of a frame is its actual departure minus that of the other stream's last frame before it, both from the "
    "sender's records; a bin is named by its middle. Delays are means of each round; intervals are over beds where "
    "there are several, else over rounds. Expected: the mean delay of frames that do not wait, plus the time that the "
    "other stream's frame still needs on the slowest link with a rate that both share."
)


def _phase_row(run: Run, names: dict[int, str], row: dict[str, Any]) -> tuple[Entry, ...]:
    mean, low, high = (row[name] for name in BY_PHASE)
    delay = show(mean, low, high, "ns")
    expected = row["expected_ns"]
    return (
        cell_entry(run, names[row["cell"]], [row["cell"]]),
        text(row["device"], row["device"]),
        rounded(100 * row["phase"], 1),
        rounded(row["phase_ns"] / 1e3, 1),
        number(delay),
        interval(delay),
        number(show(expected, None, None, "ns")),
        whole(row["frames"]),
    )


def delay_over_phase(run: Run) -> Figure | None:
    """Return the mean delay over the phase, and the expected one of a rated link."""
    found = sample(run, "delay_by_phase", "senders")
    if found.is_empty():
        return None
    at = (pl.col("phase") * 100).alias("x")
    measured_ = found.with_columns(at, *spans(BY_PHASE, 1e-3), pl.lit("point").alias("role"))
    line = found.drop_nulls("expected_ns").with_columns(
        at, (pl.col("expected_ns") * 1e-3).alias("y"), pl.lit("fit").alias("role"),
        *(pl.lit(None, dtype=pl.Float64).alias(end) for end in ("low", "high")),
    )  # fmt: skip
    rows = pl.concat([measured_, line], how="diagonal_relaxed")
    caption = (
        "A regular stream beside another of nearly the same interval: mean delay of its frames, over the time since "
        "the other's last departure. Bars are intervals over beds, or over rounds where the run has one bed."
    )
    if line.height:
        caption += " The line is what follows from the rate of the link that both share."
    chart = Lines(Axis("Phase (% of the interval)", zero=True, most=100), Axis("Mean one-way delay (µs)", zero=True))
    return figure("delay_over_phase", "Delay by phase", caption, rows, chart, columns=1)


def spread_over_senders(run: Run) -> Figure | None:
    """Return the delay spread over the number of senders."""
    rows = rows_over(run, "delay_spread", tuple(SPREADS), "senders")
    rows = rows.with_columns(pl.col("statistic").replace(SPREADS).alias("series")).pipe(along)
    paced = rows.filter(pl.col("schedule") != "flood").drop_nulls("y").filter(pl.col("y") > 0)
    chart = Lines(SENDERS, Axis("Delay spread (µs)", log=True), tuple(SPREADS.values()))
    caption = (
        "Spread of the first sender's one-way delays within a trial. The total rate is the same for every number of "
        "senders."
    )
    return figure("spread_over_senders", "Delay spread", caption, paced, chart)


def rate_over_senders(run: Run) -> Figure | None:
    """Return the total throughput of all senders."""
    flood = pl.col("schedule") == "flood"
    rows = rows_over(run, "throughput_bps", rates.RATE, "senders", where=flood)
    rows = rows.drop_nulls("y").pipe(along)
    caption = f"All senders together; frames count with their FCS. {rates.SOFTWARE}"
    chart = Lines(SENDERS, rates.axis("Received (Mbit/s)", rows))
    return figure("rate_over_senders", "Total rate in a flood", caption, rows, chart)


def fairness_over_senders(run: Run) -> Figure | None:
    """Return Jain's index over the number of senders."""
    rows = rows_over(run, "fairness", ("jain",), "senders").drop_nulls("y").pipe(along)
    caption = "Jain's index of the senders' received rates: 1 where all get the same rate."
    return figure("fairness", "Fairness", caption, rows, Lines(SENDERS, Axis("Jain's fairness", zero=True)))


def shares(run: Run) -> Figure | None:
    """Return the received rate of each sender."""
    found = sample(run, "shares", "senders")
    if found.is_empty():
        return None
    rows = factor(found, "senders").with_columns(pl.col("received_pps").alias("y"))
    rows = rows.filter(pl.col("schedule") == "flood").with_columns(low=None, high=None)
    caption = "One point for each sender and trial: the rate at which its frames arrived."
    chart = Lines(SENDERS, Axis("Rate of a sender (frames/s)", zero=True), joined=False)
    return figure("shares", "Received rate of each sender", caption, rows, chart)


def keys(run: Run) -> list[Key]:
    """Return what the phase changes; the delay spread with the fewest and the most senders, and fairness with
    the most."""
    found = [
        delays.key_of(row, f"{row['device']}: delay just after the other's frame", f"{row['frame_bytes']} B", LATER)
        for row in run.rows("phase_effect").iter_rows(named=True)
    ]
    for device in [one for one in run.devices if one != "a/a"]:
        spread = run.rows("delay_spread", "sd", device=device).filter(pl.col("schedule") != "flood")
        smallest = spread.filter(pl.col("frame_bytes") == pl.col("frame_bytes").min())
        found += [_spread_key(row) for row in delays.ends(smallest, "senders")]
        fair = delays.extreme(
            run.rows("fairness", "jain", device=device).filter(pl.col("schedule") == "flood"), "senders"
        )
        if fair and (fair["senders"] or 0) > 1:
            said = (f"{fair['senders']} senders, {fair['frame_bytes']} B, flood", "1: all get the same rate")
            places = 6 if fair["estimate"] < 1 and fixed(fair["estimate"], 3) == "1.000" else 3
            found.append(Key(f"{device}: Jain's fairness", fixed(fair["estimate"], places), "", said, device))
    return found


def _spread_key(row: dict[str, object]) -> Key:
    many = f"{row['senders']} sender{'s' if int(str(row['senders'])) > 1 else ''}"
    title = f"{row['device']}: delay spread with {many}"
    return delays.key_of(row, title, f"{row['frame_bytes']} B, standard deviation")


def how(run: Run) -> list[str]:
    """Return how it was measured."""
    walked = ""
    if run.rows("phase_effect").height:
        walked = (
            " The second of two senders has a slightly longer interval, so that the phase between them takes every "
            "value in a trial; the phase is computed from the recorded departures."
        )
    return words(
        run,
        "Several ports of host A send to one port of host B, each its own stream. With regular streams the total rate "
        "is the same for any number of senders; at the maximum rate (“flood”) each sends as fast as it can. All "
        "senders are one program on one core." + walked,
    )


PARTS = Parts(
    tables=(by_phase, spreads, rates.rates, rates.tester, delays.delays, delays.conservation, delays.pacing),
    figures=(
        delay_over_phase, spread_over_senders, rate_over_senders, fairness_over_senders, shares, delays.cdfs,
        delays.histograms, delays.over_time, departures,
    ),
    keys=keys,
    words=how,
    results=("delay_by_phase", "delay_spreads"),
)  # fmt: skip
