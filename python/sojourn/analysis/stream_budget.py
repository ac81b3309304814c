"""The parts of budgets of one-way delays and rates: scatter over trials or beds, clocks, timestamps.

A delay by two clocks has two components of their offset: the scatter of exchanges, which the instrument states as a 95
% error, and the asymmetry of their two directions, which nothing in a run measures and which the maximum error bounds.
A difference of delays has the sum of both paths' errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.budget import (
    BOOTS,
    OTHER_DAYS,
    Entry,
    Stated,
    clock_rate,
    counted,
    instance,
    scatter,
    timestamp_resolution,
    unknown,
    within_beds,
)
from sojourn.statistics.budget import normal, rectangular
from sojourn.statistics.interval import student_quantile

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

ANOTHER_BED = "another bed"


def delay_budget(run: Run, rows: list[Row], name: str, row: Row, *, paths: int = 2, what: str = "trials") -> Stated:
    """Return the budget of a one-way delay (`paths` 1), or of the difference of two (2), one of `rows`.

    `what` names the independent values behind the row's interval, where it is not over beds.
    """
    entries = [*scatter_of(rows, row, what), *clocks(row), *stamps(run, row, paths), BOOTS]
    return Stated(name, row, tuple(entries), uncovered(row))


def scatter_of(rows: list[Row], row: Row, what: str) -> list[Entry]:
    """Return the scatter between beds for a row over several, else that within its one bed."""
    if row.sessions is not None:
        of = "" if row.value.n == row.sessions else f"{row.value.n} {what} on "  # a quantile's clusters are beds
        said = f"{of}{row.sessions} beds, each made anew"
        between = scatter("scatter between beds", row, row.sessions, said)
        return [between, *within_beds(rows, row, what), instance(rows, row, row.device)]
    own = scatter(f"scatter between {what}", row, row.value.n, f"{what} on one bed: {row.value.n}")
    return [own, unknown("between beds", "the run has one bed")]


def uncovered(row: Row) -> tuple[str, ...]:
    """Return what the expanded uncertainty does not cover, in words."""
    return (OTHER_DAYS,) if row.sessions is not None else (OTHER_DAYS, ANOTHER_BED)


def clocks(row: Row) -> list[Entry]:
    """Return the offset between two clocks; zero where one clock timestamped both ends."""
    bound, error95 = row.clock_bound_ns, row.clock_error95_ns
    if not bound:
        why = "both ends read one clock" if bound == 0 else "this figure has no offset between clocks in it"
        return [Entry("offset of the clocks", "cancels", why)]
    found = min(error95 if error95 is not None else bound, bound)
    spread = normal("offset of the clocks", found, "ns", student_quantile(float("inf"), 0.95))
    asymmetry = rectangular("asymmetry of the exchanges, slews", bound - found, "ns")
    return [
        counted(spread, "the 95 % error of the clocks' exchanges, with its growth outside the time of the exchanges"),
        counted(asymmetry, "not measured: limited by the maximum error of the clocks, minus their 95 % error"),
    ]


def stamps(run: Run, row: Row, paths: int) -> list[Entry]:
    """Return the points of timestamping, the resolution, and the rate of the clock."""
    points = "points of timestamping"
    where = row.source or "the stamps of the records"
    if " and " in where:
        found = [unknown(points, f"timestamps are from several sources: {where}")]
    elif paths == 1:
        found = [Entry(points, "outside", f"by definition the delay is between these points: {where}")]
    else:
        found = [Entry(points, "cancels", f"the same on both sides of the difference ({where})")]
    step = step_of(run)
    if step is None:
        found.append(unknown("resolution of timestamps", "delays were counted in bins, not recorded one by one"))
    else:
        number = 2 * paths
        found.append(timestamp_resolution(step, f"{number} of them, each with sensitivity 1", number**0.5))
    return found if run.simulated else [*found, clock_rate(row.value.estimate)]


def step_of(run: Run) -> int | None:
    """Return the step in ns of which all timestamps are multiples, up to a constant; None where no packet was
    recorded."""
    steps = []
    for table, column in ((run.arrivals, "arrival_ns"), (run.sends, "departure_ns")):
        if column in table.columns and (times := table[column].drop_nulls()).len() > 1:
            whole = times.to_numpy().astype(np.int64)
            steps.append(int(np.gcd.reduce(whole - whole[0])))
    known = [one for one in steps if one]
    return int(np.gcd.reduce(known)) if known else None
