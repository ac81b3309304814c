"""Are the figures themselves sound: enough pairs, a direct link that equals itself, no device faster than none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.wording import micro, percent
from sojourn.statistics.sessions import LEAST_SESSIONS
from sojourn.statistics.signed_rank import least_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.rows import Row
    from sojourn.statistics.interval import Interval


def soundness_findings(rows: list[Row], bed_ns: float, control: Interval | None) -> list[Finding]:
    """What is wrong with the device latencies; `control` is an A/A difference that is not zero, if it is not."""
    latencies = [row for row in rows if row.quantity == "device_latency" and row.statistic in ("mean", "pooled")]
    found = [*_too_few(latencies), *_a_a_nonzero(control), *_below_floor(latencies, bed_ns)]
    return [*found, *_estimators_disagree(rows)]


def _too_few(rows: list[Row]) -> Iterator[Finding]:
    short = sorted((row for row in rows if row.value.low is None), key=lambda row: row.value.n)
    if short:
        worst = short[0].value
        needed = least_pairs(worst.level)
        sentence = f"{worst.n} pairs give no interval of {percent(worst.level)}: at least {needed} are needed"
        if (sessions := short[0].sessions) is not None and sessions < LEAST_SESSIONS:
            sentence = f"{sessions} beds give no interval between beds: at least {LEAST_SESSIONS} are needed"
        yield Finding("too_few_pairs", sentence, float(worst.n), tuple(Place(row.device, row.cell) for row in short))


def _a_a_nonzero(control: Interval | None) -> Iterator[Finding]:
    if control is not None:
        size = control.estimate
        sentence = (
            "the A/A control differs significantly from zero: two measurements of the direct link differ by "
            f"{micro(size)} one way"
        )
        yield Finding("a_a_nonzero", sentence, size)


def _estimators_disagree(rows: list[Row]) -> Iterator[Finding]:
    """Where the mean lies outside the interval of the pseudomedian: a few pairs are far off, on one side."""
    means = {
        (row.device, row.reference, row.cell): row.value.estimate
        for row in rows
        if (row.quantity, row.statistic) == ("device_latency", "mean")
    }
    found: dict[Place, float] = {}
    told: dict[Place, str] = {}
    for row in rows:
        mean = means.get((row.device, row.reference, row.cell))
        is_beside = (row.quantity, row.statistic) == ("device_latency", "hodges_lehmann") and row.device != A_A
        if is_beside and mean is not None and row.sampled.excludes(mean):
            place = Place(row.device, row.cell)
            found[place] = abs(mean - row.value.estimate)
            told[place] = f"{micro(mean)} and {micro(row.value.estimate)}"
    if found:
        places, worst = worst_first(found)
        sentence = (
            f"the mean of the pairs and their pseudomedian (Hodges and Lehmann) are {told[places[0]]}: few pairs make "
            "the mean, so look at the tail of the delays"
        )
        yield Finding("estimators_disagree", sentence, worst, places)


def _below_floor(rows: list[Row], bed_ns: float) -> Iterator[Finding]:
    """Below zero by more than the bed resolves, over all cells: no device takes time away."""
    for row in rows:
        value = row.value
        pooled = row.statistic == "pooled" and row.reference == DIRECT and row.device != A_A
        if pooled and value.high is not None and value.high < 0 and value.estimate < -bed_ns:
            sentence = f"the path with {row.device} is {micro(-value.estimate)} faster than the direct link"
            yield Finding("below_floor", sentence, value.estimate, (Place(row.device),))
