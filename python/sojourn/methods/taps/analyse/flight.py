"""Packets in flight in the device when a packet enters it, and the losses, reordering and duplicates of each trial.

A packet is in flight from its timestamp at the port where it enters to that at the port where it leaves; a lost packet
is not counted as in flight, because the time of its loss is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.rows import Row
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.streams import elapsed_s, in_order, over_trials, sessions_of, share_of
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sojourn.analysis.run import Run

IN_FLIGHT = "packets_in_flight"
LEAST_IN_A_CLASS = 10
"""The least number of a trial's packets for a mean."""

EXACT = 8
"""Numbers in flight below this are a class each; beyond, each power of two begins a class."""

LOST, REORDERED, DUPLICATED = "lost_between_taps", "reordered_between_taps", "duplicated_between_taps"
OF = {LOST: ("lost", "entered"), REORDERED: ("reordered", "left"), DUPLICATED: ("duplicated", "left")}
"""The shares: numerator and denominator."""


def with_in_flight(packets: pl.DataFrame) -> pl.DataFrame:
    """Add `in_flight`: how many others had entered before each packet and had not left."""
    frames = []
    for one in packets.sort("block", "first_ns", maintain_order=True).partition_by("block", maintain_order=True):
        entered = one["first_ns"].to_numpy().astype(np.int64)
        left = np.sort(entered + one["delay_ns"].to_numpy().astype(np.int64))
        before = np.arange(len(entered)) - np.searchsorted(left, entered, side="right")
        frames.append(one.with_columns(in_flight=pl.Series(np.maximum(before, 0), dtype=pl.Int64)))
    return pl.concat(frames) if frames else packets.with_columns(in_flight=pl.lit(0, pl.Int64))


def flight_rows(run: Run, packets: pl.DataFrame) -> list[Row]:
    """Return the number of packets in the device: the mean over trials, and the maximum."""
    rows = []
    for (device, cell), some in _places(run, packets):
        trials = some.group_by("block").agg(pl.col("session").first(), pl.col("in_flight").mean()).sort("block")
        values, sessions = trials["in_flight"].to_numpy(), trials["session"].to_numpy().astype(np.int64)
        mean, most = (
            over_trials(values, 0.95, sessions),
            Interval(float(some["in_flight"].to_numpy().max()), None, None, 0.95, 1),
        )
        for statistic, value in (("mean", mean), ("max", most)):
            row = Row(device, IN_FLIGHT, statistic, value, "1", None, run.cells[cell], cell, some.height)
            rows.append(replace(row, sessions=sessions_of(trials)))
    return rows


TAP_IN_FLIGHT = Sample(
    "The packets that found so many others in the device.",
    {
        **shared("device cell"),
        "in_flight": (pl.Int64, "How many others; from some number on a class, which reaches to its double."),
        "packets": (pl.Int64, "Packets of this class."),
        "mean_ns": (pl.Float64, "Their mean delay between the taps."),
        "low_ns": (pl.Float64, "The lower end of its interval."),
        "high_ns": (pl.Float64, "The upper end of its interval."),
    },
    with_factors=True,
)
TAP_TRIALS = Sample(
    "A trial, as its taps counted.",
    {
        **shared("block device cell elapsed_s"),
        "entered": (pl.Int64, "Packets at the tap before the device."),
        "left": (pl.Int64, "Packets of them at the tap behind it."),
        "lost": (pl.Int64, "Packets of them that did not come there."),
        "reordered": (pl.Int64, "Packets that a later one overtook between the taps."),
        "duplicated": (pl.Int64, "Packets that came to the tap behind the device again."),
    },
    with_factors=True,
)


def delays_in_flight(run: Run, packets: pl.DataFrame) -> pl.DataFrame:
    """Return the delay by packets in the device."""
    power = 2 ** pl.col("in_flight").clip(lower_bound=1).log(2).floor().cast(pl.Int64)
    classed = packets.with_columns(begins=pl.when(pl.col("in_flight") < EXACT).then("in_flight").otherwise(power))
    found = []
    for (device, cell), some in _places(run, classed):
        for begins in sorted(some["begins"].unique()):
            here = some.filter(pl.col("begins") == begins)
            trials = here.group_by("block").agg(pl.len(), pl.col("session").first(), pl.col("delay_ns").mean())
            trials = trials.filter(pl.col("len") >= LEAST_IN_A_CLASS).sort("block")
            if not trials.height:
                continue
            mean = over_trials(trials["delay_ns"].to_numpy(), 0.95, trials["session"].to_numpy().astype(np.int64))
            found.append((device, cell, begins, here.height, mean.estimate, mean.low, mean.high))
    return pl.DataFrame(found, schema=TAP_IN_FLIGHT.own, orient="row")


def _places(run: Run, packets: pl.DataFrame) -> list[tuple[tuple[str, int], pl.DataFrame]]:
    """Return the packets of each path and cell, in the order of the tables."""
    groups = packets.partition_by("device", "cell", as_dict=True, maintain_order=True)
    each = {(str(device), int(str(cell))): some for (device, cell), some in groups.items()}
    return [(place, each[place]) for place in in_order(run, list(each))]


def accounts(
    run: Run,
    flows: pl.DataFrame,
    events: dict[int, dict[str, Any]],
    counts_of: Callable[[dict[str, Any]], dict[str, int]],
) -> pl.DataFrame:
    """Return for each trial: block, device, cell, session, elapsed_s, entered, left, lost, reordered, duplicated."""
    counted = []
    for block, event in sorted(events.items()):
        counts = counts_of(event)
        lost = sum(int(counts.get(name, 0)) for name in ("lost", "pending", "evicted"))
        left = int(counts.get("matched", 0))
        counted.append(
            (block, left + lost, left, lost, *(int(counts.get(one, 0)) for one in ("reordered", "duplicated")))
        )
    names = ("entered", "left", "lost", "reordered", "duplicated")
    frame = pl.DataFrame(counted, schema={"block": pl.Int32, **dict.fromkeys(names, pl.Int64)}, orient="row")
    places = flows.with_columns(elapsed_s=elapsed_s(run, "started_ns")).select(
        "block", "device", "cell", "session", "elapsed_s"
    )
    return places.unique("block").join(frame, on="block", how="inner").sort("block")


def account_rows(run: Run, trials: pl.DataFrame) -> list[Row]:
    """Return the shares of the packets that were lost, reordered or duplicated between the taps."""
    rows = []
    for (device, cell), some in _places(run, trials):
        for quantity, (counted, of) in OF.items():
            each: list[NDArray[np.float64]] = [some[name].to_numpy().astype(np.float64) for name in (counted, of)]
            if not each[1].sum():
                continue
            row = Row(device, quantity, "ratio", share_of(some, *each), "1", None, run.cells[cell], cell)
            rows.append(replace(row, probes=int(each[1].sum()), sessions=sessions_of(some)))
    return rows
