"""The uncertainty budget of an emulated delay: of the mean's error, in the first cell that has one.

The measurand is the mean one-way delay over the emulator, minus that of the direct link in the same cell, minus the
configured mean. The unit is the trial (with several beds the bed), not the parts of trials that the row's own interval
is over: parts of one trial are correlated. The trials of both paths contribute scatter. Emulator and stream read one
clock, whose rate affects the measured delay and the waiting: it cancels in the error, not in a delay in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.budget import BOOTS, CLOCK_RATE, Entry, Stated, counted, required, unknown
from sojourn.analysis.run import DIRECT
from sojourn.analysis.stream_budget import clocks, scatter_of, stamps, uncovered
from sojourn.analysis.wording import micro
from sojourn.statistics.budget import Component

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

PARTS = "parts of trials, though parts of one trial are alike"
LEAST = 3
"""With fewer trials or beds the scatter is unknown."""


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budget of the first pipe whose mean delay is known."""
    found = [row for row in study.rows if (row.quantity, row.statistic) == ("emulated_delay_error", "mean")]
    if not found:
        return []
    row = min(found, key=lambda one: one.cell or 0)
    trials = study.samples.get("trials", pl.DataFrame())
    entries = [
        *_scatter(study.rows, trials, row),
        *clocks(row),
        *(one for one in stamps(run, row, 2) if one.name != "rate of the clock"),
        _clock(run, study.rows, row),
        *_path(study.rows, row),
        _log(study.rows, row),
        unknown(
            "load of the host",
            "not varied in the run; a finding says where other programs took much of the processors",
        ),
        BOOTS,
    ]
    of = PARTS if row.sessions is None else "the scatter alone"
    return [Stated(f"Error of the mean delay of {row.device}", row, tuple(entries), uncovered(row), of)]


def _scatter(rows: list[Row], trials: pl.DataFrame, row: Row) -> list[Entry]:
    """Return the scatter of the differences of several beds, or of the trials of each path on one."""
    if row.sessions is not None:
        return scatter_of(rows, row, "differences of rounds")
    emulated, floor = (_means(trials, path, row.cell) for path in (row.device, DIRECT))
    return [
        _of("scatter of trials over the emulator", emulated, row, f"means of {len(emulated)} trials"),
        _of("scatter of trials over the direct link", floor, row, f"means of {len(floor)} trials, subtracted", -1.0),
        unknown("between beds", "the run has one bed"),
    ]


def _means(trials: pl.DataFrame, device: str, cell: int | None) -> NDArray[np.float64]:
    """Return the mean delays of a path's trials in a cell."""
    if trials.is_empty():
        return np.empty(0)
    here = trials.filter(pl.col("device") == device, pl.col("cell") == cell)
    return here["delay_mean_ns"].drop_nulls().to_numpy().astype(np.float64)


def _of(name: str, means: NDArray[np.float64], row: Row, said: str, sensitivity: float = 1.0) -> Entry:
    """Return the standard uncertainty of the average of these means."""
    n = len(means)
    if n < LEAST:
        return required(name, f"{said}: too few")
    u = float(means.std(ddof=1)) / n**0.5
    return counted(Component(name, "A", u, row.unit, "student-t", sensitivity, n - 1), said)


def _clock(run: Run, rows: list[Row], row: Row) -> Entry:
    """Return the clock's rate: the emulator waits by the clock that measures its delay, if all hosts share one."""
    own = (row.device, row.cell, "emulated_delay", "mean")
    delay = next((one for one in rows if (one.device, one.cell, one.quantity, one.statistic) == own), None)
    if row.clock_bound_ns:
        told = "the emulator waits by its host's own: 2 x 500 ppm of its delay are in the error of the clocks"
        return Entry("rate of the clock", "contained", told)
    by = "" if delay is None or run.simulated else f" by {micro(abs(delay.value.estimate) * CLOCK_RATE)}"
    said = (
        "emulator and stream read one clock: its rate cancels in the error, but a delay measured by another clock "
        f"can differ{by}"
    )
    return Entry("rate of the clock", "cancels", said)


def _path(rows: list[Row], row: Row) -> list[Entry]:
    """Return the delay of the path to and from the emulator, which is part of the figure."""
    own = (row.device, row.cell, "path_delay")
    found = next((one for one in rows if (one.device, one.cell, one.quantity) == own), None)
    name = "path outside the emulator"
    if found is None:
        return [unknown(name, "without the emulator's log it cannot be separated from the emulator's own lateness")]
    return [Entry(name, "outside", f"{micro(found.value.estimate)} of the figure; the option compensate subtracts it")]


def _log(rows: list[Row], row: Row) -> Entry:
    """Return the lateness in the emulator's log, which the figure does not use."""
    own = (row.device, row.cell, "emulation_error", "mean")
    found = next((one for one in rows if (one.device, one.cell, one.quantity, one.statistic) == own), None)
    name = "lateness in the emulator's log"
    if found is None:
        return unknown(name, "the emulator kept no log")
    said = (
        f"packets left {micro(found.value.estimate)} after their intended time on average: this is part of the "
        "figure, not an error of it"
    )
    return Entry(name, "outside", said)
