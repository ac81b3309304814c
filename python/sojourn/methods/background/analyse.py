"""Method "background": latency beside other traffic through the device, and the processor's part of it taken off.

The same load is sent through the device and past it (bypass load): what the bypass load costs is the machine's, so the
shift of through less beside is the device's own. Both against no load at all are given too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.round_trips import round_trips, trip_summaries
from sojourn.analysis.rows import Row, over_beds
from sojourn.analysis.run import DIRECT
from sojourn.analysis.samples import Sample, shared, with_cells
from sojourn.analysis.stream_budget import delay_budget
from sojourn.analysis.stream_findings import LEAST_FOR_MODES, modes_apart
from sojourn.analysis.stream_rows import contrasts, delay_rows, shift_rows, tell_clocks
from sojourn.analysis.stream_samples import COMMON, histogram_samples, point, quantile_samples, row_samples
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.streams import series
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import HOLDS_ZERO, micro, percent
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from sojourn.analysis.budget import Stated
    from sojourn.analysis.packets import Values
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study


def study(run: Run) -> Study:
    """Return delays at each load and path of the load, their shifts, and their modes."""
    of = Gathered(run)
    of.begin()
    trips = round_trips(run)
    of.rows.extend(delay_rows(run, trips))
    idle = [cell for cell, one in run.cells.items() if not one.load]
    of.add_devices(idle)
    pairs = [*contrasts(run, "load", 0.0, ("load_via",)), *contrasts(run, "load_via", "beside")]
    shifts = []
    for quantity, each in (("one_way_delay", of.summaries), ("rtt", trip_summaries(run))):
        for statistic in ("mean", "p50"):
            shifts += shift_rows(run, series(each, statistic), pairs, quantity, statistic)
    tell_clocks([row for row in shifts if row.quantity == "one_way_delay_shift"], pairs, of.summaries)
    of.rows.extend(shifts)
    several = [*of.delays, *trips]
    modes = modes_of(several)
    of.rows.extend(mode_rows(run, several, modes))
    of.samples["shifts"] = row_samples(run, shifts)
    of.samples["modes"] = with_cells(run, mode_samples(modes))
    of.samples["delay_quantiles"] = with_cells(run, quantile_samples([*of.delays, *trips]))
    of.samples["delay_histograms"] = with_cells(run, histogram_samples([*of.delays, *trips]))
    return of.conclude(sentence(run, of.rows))


BESIDE = "load_via=beside"
CHANGED = {"one_way_delay_shift": "mean one-way delay", "rtt_shift": "mean round trip"}

Modes = dict[tuple[str, int, str], list[float]]

MODES = Sample(
    "A mode of the delays over a path in a cell.",
    {**shared("device cell measure"), "mode_ns": (pl.Float64, "The delay of the mode.")},
    with_factors=True,
)
SAMPLES = COMMON | {"shifts": point("A shift against no load, or the same load beside the device"), "modes": MODES}


def modes_of(several: list[Values]) -> Modes:
    """Return the modes of the delays of every path and cell with enough of them."""
    return {
        (one.device, one.cell, one.measure): modes_apart(one.within_sessions())
        for one in several
        if one.weights is None and len(one.values) >= LEAST_FOR_MODES
    }


def mode_rows(run: Run, several: list[Values], modes: Modes) -> list[Row]:
    """Return the number of modes; a count over all packets together has no interval over trials."""
    rows = []
    for one in several:
        found = modes.get((one.device, one.cell, one.measure))
        if found is not None:
            count = Interval(float(len(found)), None, None, 0.95, len(one.blocks))
            rows.append(Row(one.device, "modes", "count", count, "1", None, run.cells[one.cell], one.cell, one.count))
    return rows


def mode_samples(modes: Modes) -> pl.DataFrame:
    """Return the location of every mode."""
    found = [(*at, mode) for at, several in modes.items() for mode in several]
    return pl.DataFrame(found, schema=MODES.own, orient="row")


def sentence(run: Run, rows: list[Row]) -> str:
    """Return what the heaviest load through the device adds to the latency, minus its cost on the machine."""
    changes = heaviest(run, rows)
    named = amid(_device(run))
    if not changes:
        return f"No load through {named} was measured"
    load = f"A load of {percent(changes[0].factors.load or 0)} through {named}"
    load += " rather than past it" if changes[0].against == BESIDE else ""
    return f"{load} {' and '.join(map(_change, changes))}"


def heaviest(run: Run, rows: list[Row]) -> list[Row]:
    """Return the changes by the heaviest load, one-way delay first: a load may change it and not the round trip."""
    device = _device(run)
    shifts = [
        row for row in rows if row.device == device and row.quantity.endswith("_shift") and row.statistic == "mean"
    ]
    own = [row for row in shifts if row.against == BESIDE] or [row for row in shifts if row.against]
    most = max((row.factors.load or 0 for row in own), default=0)
    found = {row.quantity: row for row in reversed(own) if row.factors.load == most}
    return [found[one] for one in sorted(found)]


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budgets of the changes in the sentence; both cells of a difference are over the same path."""
    return [
        delay_budget(
            run,
            study.rows,
            f"Change of the {CHANGED[row.quantity]} over {row.device} by load",
            row,
            what="pairs of trials",
        )
        for row in heaviest(run, study.rows)
    ]


def _device(run: Run) -> str:
    return main_device(run.devices) or DIRECT


def _change(row: Row) -> str:
    """Return the change by a load in words: "lengthens the mean round trip by 71 µs (95 % CI ...)"."""
    what = "the mean round trip" if row.quantity.startswith("rtt") else "the mean one-way delay"
    value = row.value
    if value.low is None or value.high is None:
        return f"changes {what} by {micro(value.estimate)} (too few trials for an interval)"
    if value.excludes(0):
        change = "shortens" if value.estimate < 0 else "lengthens"
        return f"{change} {what} by {spell(negated(value) if value.estimate < 0 else value, over_beds(row))}"
    return f"shows no effect on {what}: {spell(value, over_beds(row))}, {HOLDS_ZERO}"


def negated(value: Interval) -> Interval:
    """Return the interval with its sign reversed."""
    low, high = (None if end is None else -end for end in (value.high, value.low))
    return Interval(-value.estimate, low, high, value.level, value.n)


def spell(value: Interval, over: str = "") -> str:
    """Return a time with its interval and the beds: "1.8 µs (95 % CI 1.7 µs to 1.9 µs over 5 beds)"."""
    known = (
        "" if value.low is None or value.high is None else f" (95 % CI {micro(value.low)} to {micro(value.high)}{over})"
    )
    return f"{micro(value.estimate)}{known}"
