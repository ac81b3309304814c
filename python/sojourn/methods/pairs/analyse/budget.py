"""The uncertainty budget of a device's latency at the headline's cell, from pairs.

The measurand is the mean of the latencies of both directions, over the reference, at the plan's reference cell. Each
bed has its own links, devices, processes, cores and order of paths, so the scatter between beds contains the variation
between instances and the scatter of pairs; both are listed and counted once. What has the same value on both paths of a
pair cancels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.budget import (
    BOOTS,
    OTHER_DAYS,
    Entry,
    Stated,
    clock_rate,
    instance,
    scatter,
    standard_error,
    timestamp_resolution,
    unknown,
    within_beds,
)
from sojourn.analysis.run import DIRECT, WIRE
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import micro
from sojourn.devices import cables
from sojourn.statistics.budget import Component

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

ANOTHER_BED = "another bed"
TURNAROUND = Entry(
    "turnaround of the other end",
    "contained",
    "the same program answers on both paths: random differences are part of the scatter of pairs",
)
ONE_DIRECTION = "request or reply by itself"


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budget of the headline; none where no device was measured."""
    row = study.headline
    if row is None:
        return []
    direction = directions(study.rows, row)
    entries = [
        *_scatter(run, study.rows, row),
        TURNAROUND,
        direction,
        _stamps(run, row),
        *_clock(run, row),
        _definition(run, row),
    ]
    uncovered = [OTHER_DAYS, *([] if row.sessions else [ANOTHER_BED])]
    if direction.state == "unknown":
        uncovered.append(ONE_DIRECTION)
    name = f"Latency of {row.device} over {row.reference}"
    return [Stated(name, row, (*entries, BOOTS), tuple(uncovered))]


def _scatter(run: Run, rows: list[Row], row: Row) -> list[Entry]:
    """Return the scatter of repetitions: between beds with its parts, or within the one bed."""
    if row.sessions is None:
        return [
            scatter("scatter within the bed", row, row.value.n, f"{row.value.n} pairs of one bed"),
            unknown("between beds", "the run has one bed; the plan's bed.sessions makes several"),
            unknown("instance of link and device", f"the bed has {'two' if run.has_twins else 'one'} of each"),
            _drift("the scatter within the bed"),
        ]
    between = scatter("scatter between beds", row, row.sessions, f"means of {row.sessions} beds, each made anew")
    instances = [instance(rows, row, row.device, "instance of link and device")]
    if row.reference not in (DIRECT, WIRE):
        instances.append(instance(rows, row, str(row.reference), "instance of the reference"))
    return [between, *within_beds(rows, row, "pairs"), *instances, _drift("the scatter within a bed")]


def _drift(where: str) -> Entry:
    said = (
        "linear drift cancels in mirrored rounds; the sign of the rest depends on the random order, so it is part "
        f"of {where}"
    )
    return Entry("drift within a round", "contained", said)


def directions(rows: list[Row], row: Row) -> Entry:
    """Return the difference of request and reply, which is separate from the measurand, the mean of both."""
    name = "asymmetry of request and reply"
    found = _beside(rows, row, "latency_asymmetry", "mean")
    if found is None:
        why = "the arrival of a request at the other end was not recorded, or the ends have no common clock"
        return unknown(name, f"{why}; the figure is the mean of both directions")
    units, half = found.sessions or found.value.n, found.value.longer
    u = standard_error(found.value, units)
    component = None if u is None else Component(name, "A", u, row.unit, "student-t", 0.0, units - 1)
    side, reach = "more" if found.value.estimate >= 0 else "less", "" if half is None else f" (± {micro(half)})"
    more = f"{micro(abs(found.value.estimate))}{reach} {side}"
    said = f"the request takes {more} than the figure, which is the mean of both directions"
    return Entry(name, "outside", said, component)


def _stamps(run: Run, row: Row) -> Entry:
    """Return whether timestamps are taken at the same points on both paths of a pair."""
    paths = [run.paths[path, row.cell] for path in (row.device, row.reference) if (path, row.cell) in run.paths]
    stamped = [path.probes("departure_source", "arrival_source").drop_nulls("arrival_source") for path in paths]
    sources = pl.concat(stamped).unique() if stamped else pl.DataFrame()
    name = "points of timestamping"
    if sources.height != 1:
        return unknown(name, "timestamps of both paths are from several sources")
    departure, arrival = sources.row(0)
    where = str(departure) if departure == arrival else f"departure {departure}, arrival {arrival}"
    return Entry(name, "cancels", f"the same on both paths ({where}), so the difference does not contain them")


def _clock(run: Run, row: Row) -> list[Entry]:
    """Return the resolution and the rate of the one clock of all timestamps. Simulated time has only a resolution."""
    times = (probes["rtt"].drop_nulls().to_numpy() for probes in run.path_by_path("rtt"))
    step = int(np.gcd.reduce([np.gcd.reduce(own) for own in times if len(own)] or [0]))
    # Half the difference of two round trips: four timestamps, each with a sensitivity of 1/2; √4 · 1/2 is 1.
    found = [timestamp_resolution(max(1, step), "four of them, each with sensitivity ½", 1.0)]
    return found if run.simulated else [*found, clock_rate(row.value.estimate)]


def _definition(run: Run, row: Row) -> Entry:
    """Return the reference, which is part of the measurand."""
    name = "definition of the measurand"
    if row.reference == WIRE:
        return Entry(
            name,
            "outside",
            "the wire is the reference by definition; the latency over the direct link is another figure",
        )
    if row.reference != DIRECT and cables(str(row.reference)) == cables(row.device):
        said = f"{amid(str(row.reference))} is the reference by definition, on a path of as many links"
        return Entry(name, "outside", said)
    wire = "" if run.simulated else ": the figure contains the further links of the device's path"
    over = "direct link" if row.reference == DIRECT else str(row.reference)
    return Entry(name, "outside", f"the {over} is the reference by definition{wire}")


def _beside(rows: list[Row], row: Row, quantity: str, statistic: str) -> Row | None:
    """Return the row of the same device, reference and cell with another quantity."""
    wanted = (row.device, row.reference, quantity, statistic, row.cell)
    return next(
        (one for one in rows if (one.device, one.reference, one.quantity, one.statistic, one.cell) == wanted), None
    )
