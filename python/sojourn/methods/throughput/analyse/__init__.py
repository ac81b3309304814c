"""Method "throughput": offered and received rate, and the time between frames, over the frame's size.

The time between received frames is fitted by a + b x frame size per round, over the cells with the highest offered
rate of each size: the floods, where there are any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.factors import in_common
from sojourn.analysis.rates import RATES, overloads_of, rate_rows, rate_samples
from sojourn.analysis.rows import Row
from sojourn.analysis.run import A_A
from sojourn.analysis.samples import BAND_POINTS, Sample, shared, with_cells
from sojourn.analysis.sessions import beds_in, by_session
from sojourn.analysis.stream_samples import COMMON
from sojourn.analysis.stream_study import Gathered
from sojourn.analysis.streams import Series, series
from sojourn.analysis.verdict import amid
from sojourn.analysis.wording import decimals, fixed, percent
from sojourn.methods.throughput.analyse import pacing
from sojourn.methods.throughput.analyse.budget import budgets, leading
from sojourn.statistics.interval import student_t
from sojourn.statistics.line import Line, fit
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study
    from sojourn.statistics.line import Over

__all__ = ["SAMPLES", "budgets", "study"]

LEAST_SIZES = 2
PACING = "minimum-frame-time"
RATE_LINES = Sample(
    "A point of the line that is fitted to the time between frames over sizes, with its 95 % band.",
    {
        **shared("device"),
        "frame_bytes": (pl.Float64, "The Ethernet frame with its FCS."),
        **shared("estimate_ns ci_low_ns ci_high_ns"),
    },
)
SAMPLES = COMMON | {"rates": RATES, "rate_lines": RATE_LINES}


def study(run: Run) -> Study:
    """Return the rates of every cell, and the lines over size."""
    of = Gathered(run)
    of.begin(flood=True)
    of.rows.extend(rate_rows(run, of.trials))
    of.add_instances_of("received_pps", "received rates", share=True)
    of.overloads.update(overloads_of(run, of.trials))
    of.rows.extend(pacing.least_rows(run, of.trials))
    if PACING in run.hypotheses:
        of.hypotheses.extend(pacing.evaluate(PACING, run, of.trials))
    fits = lines_over_size(run, of.trials)
    of.rows.extend(row for device, (line, cells, _) in fits.items() for row in line_rows(run, device, line, cells))
    of.samples["rates"] = with_cells(run, rate_samples(run, of.trials))
    of.samples["rate_lines"] = line_samples(fits)
    return of.conclude(sentence(run, of.rows), limits=True, takes_delays=False)


def sentence(run: Run, rows: list[Row]) -> str:
    """Return how many of the smallest frames each device delivers at the highest load, and how many it loses."""
    best = leading(rows)
    several = [best[one] for one in run.devices if one in best]
    if not several:
        return "No throughput was measured"
    size = several[0].factors.frame_bytes
    rates = {(row.device, row.cell): row.value.estimate for row in rows if row.quantity == "offered_pps"}
    lost = {(row.device, row.cell): row.value.estimate for row in rows if row.quantity == "loss_ratio"}
    offered = f"{fixed(rates[several[0].device, several[0].cell], 0)} frames/s" if len(several) == 1 else "frames"
    how = "Flooded" if all(row.factors.schedule == "flood" for row in several) else "Loaded"
    parts = [
        f"{amid(row.device)} delivers {_delivered(row)} and loses {percent(lost[row.device, row.cell])}"
        for row in several
    ]
    return f"{how} with {offered} of {size} B, {'; '.join(parts)}"


def _delivered(row: Row) -> str:
    """Return a rate with its interval, with decimals where whole frames would not show the interval."""
    value, least = row.value, "at least " if row.statistic == "at_least" else ""
    if value.low is None or value.high is None:
        return f"{least}{fixed(value.estimate, 0)} frames/s"
    places = 0 if fixed(value.low, 0) != fixed(value.high, 0) else decimals((value.high - value.low) / 2)
    rate, low, high = (fixed(one, places) for one in (value.estimate, value.low, value.high))
    return f"{least}{rate} frames/s (95 % CI {low} to {high})"


Fits = dict[str, tuple[Line, list[int], "NDArray[np.float64]"]]


def lines_over_size(run: Run, trials: pl.DataFrame) -> Fits:
    """Return for every path the line of the time between frames over their size, its cells, and the sizes."""
    gaps = series(trials, 1e9 / pl.col("received_pps"))
    found: Fits = {}
    for device in [one for one in run.devices if one != A_A]:
        cells = _busiest(run, [cell for path, cell in gaps if path == device])
        sizes = np.array([float(run.cells[cell].frame_bytes or 0) for cell in cells])
        rounds, over = _per_round([gaps[device, cell] for cell in cells])
        if len(sizes) >= LEAST_SIZES and len(rounds):
            found[device] = (fit(sizes, rounds, over=over), cells, sizes)
    return found


def _busiest(run: Run, cells: list[int]) -> list[int]:
    """Return for each size, in rising order, the cell with the highest offered rate to a known address."""
    best: dict[int, int] = {}
    for cell in cells:
        one = run.cells[cell]
        if one.to in (None, "unicast") and one.frame_bytes:
            best.setdefault(one.frame_bytes, cell)
            if _asked(run, cell) > _asked(run, best[one.frame_bytes]):
                best[one.frame_bytes] = cell
    return [best[size] for size in sorted(best)]


def _asked(run: Run, cell: int) -> float:
    one = run.cells[cell]
    return float("inf") if one.schedule == "flood" else (one.rate_pps or one.rate_share or 0.0)


def _per_round(several: list[Series]) -> tuple[NDArray[np.float64], Over]:
    """Return rounds by cells as means of visits, without incomplete rounds, and the estimator of the intervals.

    Of several beds, each row is the mean over the rounds of a bed.
    """
    each = [one.by_round() for one in several]
    shared = (
        sorted(set.intersection(*(set(one) for one in each)), key=lambda at: (at.session, at.round)) if each else []
    )
    rows = np.array([[one[at] for one in each] for at in shared], dtype=np.float64)
    beds = np.array([at.session for at in shared], dtype=np.int64)
    return (by_session(rows, beds), student_t) if beds_in(beds) else (rows, hodges_lehmann)


def line_rows(run: Run, device: str, line: Line, cells: list[int]) -> list[Row]:
    """Return the rows of intercept and slope."""
    common = in_common(run.cells[cell] for cell in cells)
    return [
        Row(device, "inter_frame_intercept", "fit", line.intercept, "ns", None, common),
        Row(device, "inter_frame_slope", "fit", line.slope, "ns/byte", None, common),
    ]


def line_samples(fits: Fits) -> pl.DataFrame:
    """Return the fitted lines on a fine grid, with their bands."""
    found = []
    for device, (line, _, sizes) in fits.items():
        grid = np.linspace(sizes.min(), sizes.max(), BAND_POINTS)
        for at, value in zip(grid, line.band(grid), strict=True):
            found.append((device, float(at), value.estimate, value.low, value.high))
    return pl.DataFrame(found, schema=RATE_LINES.own, orient="row")
