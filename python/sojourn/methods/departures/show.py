"""The report of a run that judges senders: their intervals and departures, from a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.report import tables
from sojourn.report.pacing import departures, intervals
from sojourn.report.parts import Key, Parts
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.streams.measures import clock_entry

if TYPE_CHECKING:
    from sojourn.report.run import Run


def keys(run: Run) -> list[Key]:
    """Return no keys: the table is short, and comes first."""
    return []


def words(run: Run) -> list[str]:
    """Return how it was measured: unit, clock, timestamps, intervals."""
    clock, stamps = clock_and_stamps(run, "departure_interval")
    return [line.format(clock=clock_words(run, clock), stamps=stamps) for line in METHOD]


def clock_words(run: Run, clock: str) -> str:
    """Whose clock the times are of; of two, the errors of departures against their schedule."""
    apart = [row for row in run.rows("pacing_error").iter_rows(named=True) if row["clock_bound_ns"]]
    if not apart:
        return f"All times are of one clock: {clock}."
    return (
        f"Schedules are of host A's clock, and arrivals of host B's ({clock}); clock trials before and behind each "
        f"trial give the rate of both over it: 95 % error (maximum error) {clock_entry(apart).text} µs."
    )


METHOD = (
    (
        "The unit is the trial: one sender, one size, one configured interval. Only the start of its schedule is "
        "fitted, so the error of a sender that is too slow on average is counted in full."
    ),
    "{clock}",
    "Frames were stamped by {stamps}, in a capture at host B that is independent of the senders.",
    "Intervals of means and quantiles are over trials, those of shares are Clopper and Pearson's; both are 95 %.",
)

PARTS = Parts(
    tables=(tables.intervals, tables.departures),
    figures=(intervals, departures),
    keys=keys,
    words=words,
    results=("intervals", "departures"),
    has_round_trips=True,
)
