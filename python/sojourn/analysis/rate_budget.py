"""The parts of budgets of rates: throughput under an offered load, and the zero-loss rate of a search.

Frames are counted, each once, so a count has no uncertainty of its own; a rate has that of its duration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.analysis.budget import BOOTS, Entry, Stated, clock_rate, counted, unknown
from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.stream_budget import scatter_of, uncovered
from sojourn.analysis.wording import counted as number_of
from sojourn.analysis.wording import fixed, percent
from sojourn.statistics.budget import rectangular

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study

OF_THIS_DURATION = "trials of another duration"


def received_budget(run: Run, rows: list[Row], row: Row) -> Stated:
    """Return the budget of a received rate under an offered load."""
    limit = Entry(
        "limit of the tester", "outside", "the rate is well below the tester zero-loss rate, or that rate is not known"
    )
    if row.statistic == "at_least":
        limit = unknown("limit of the tester", "the rate is within 10 % of the tester's own: the device may do more")
    entries = [*scatter_of(rows, row, "trials"), *_rate_of_clock(run, row), limit, *_of_the_machine(), BOOTS]
    return Stated(f"Throughput over {row.device}", row, tuple(entries), (*uncovered(row), OF_THIS_DURATION))


def search_budgets(run: Run, study: Study) -> list[Stated]:
    """Return the budgets of the rates in a suite's sentence: of the device's smallest frame with one, per goal."""
    known = [row for row in study.rows if row.statistic == "rate" and row.quantity.partition("_")[0] in ("ndr", "pdr")]
    device = main_device(sorted({row.device for row in known}))
    mine = [row for row in known if row.device == device]
    size = min((row.factors.frame_bytes or 0 for row in mine), default=0)
    rates = study.samples.get("suite_rates", pl.DataFrame())
    return [
        search_budget(run, study.rows, row, found)
        for row in mine
        if row.factors.frame_bytes == size and (found := _sample(rates, row)) is not None
    ]


def search_budget(run: Run, rows: list[Row], row: Row, sample: dict[str, Any]) -> Stated:
    """Return the budget of a search's lower bound; `sample` is its row of `suite_rates`."""
    entries = [
        *scatter_of(rows, row, "searches"),
        *_bracket(row, sample),
        *_offered(row, sample),
        *_rate_of_clock(run, row),
        _decision(sample),
        *_of_the_machine(),
        BOOTS,
    ]
    goal = "without loss" if not sample["goal"] else f"with at most {percent(sample['goal'])} lost"
    how = ", binary search" if sample["algorithm"] == "binary" else ""
    name = f"Rate over {row.device} {goal}, {row.factors.frame_bytes} B{how}"
    return Stated(name, row, tuple(entries), (*uncovered(row), OF_THIS_DURATION))


def _sample(rates: pl.DataFrame, row: Row) -> dict[str, Any] | None:
    if rates.is_empty():
        return None
    alike = (
        (pl.col("device") == row.device)
        & (pl.col("quantity") == row.quantity)
        & (pl.col("frame_bytes") == row.factors.frame_bytes)
        & (pl.col("engine") == row.factors.engine)
    )
    return next(rates.filter(alike).iter_rows(named=True), None)


def _bracket(row: Row, sample: dict[str, Any]) -> list[Entry]:
    """Return the bracket: the sustainable rate lies up to its width above the figure, which is its lower end.

    The root mean square distance of a rectangular distribution over the bracket from its lower end is width/√3.
    """
    name, upper = "bracket of the search", sample["upper_pps"]
    if upper is None:
        return [unknown(name, "no load failed")]
    width = max(0.0, upper - row.value.estimate)
    said = f"the next load that failed is {fixed(width, 0)} frames/s above; the figure is the lower end of the bracket"
    return [counted(rectangular(name, width, row.unit), said)]


def _offered(row: Row, sample: dict[str, Any]) -> list[Entry]:
    """Return the deviation of the offered load from the nominal one, which is reported."""
    off = sample["offered_off"]
    if off is None:
        return [unknown("offered rate", "the rate that was sent is not recorded")]
    said = "the largest deviation of the rate sent from the nominal one, in the trials that decided"
    return [counted(rectangular("offered rate", off, "1", row.value.estimate), said)]


def _decision(sample: dict[str, Any]) -> Entry:
    """Return what the trials at the lower bound cannot exclude."""
    name = "risk of the loss decision"
    trials = number_of(sample["trials"], "trial")
    if sample["unseen_loss"] is None:
        return unknown(name, f"it is not computed for a goal that allows loss, decided by {trials}")
    said = f"no loss in {trials} does not exclude a loss ratio of {percent(sample['unseen_loss'])} (95 %)"
    return Entry(name, "outside", f"{said}; this is a risk of a wrong decision, not an uncertainty of the rate")


def _rate_of_clock(run: Run, row: Row) -> list[Entry]:
    return [] if run.simulated else [clock_rate(row.value.estimate)]


def _of_the_machine() -> tuple[Entry, Entry]:
    """Return what every rate on one machine leaves unknown."""
    return (
        unknown(
            "duration of a trial",
            "the trials that decide the figure have one duration; a device with a buffer passes more in a short trial",
        ),
        unknown("share of the device's core", "how much of that core the sender and the receiver use is not measured"),
    )
