"""Check the figures: a direct link that equals itself, estimators that agree, no device faster than none.

`too_few` checks for every method whether there are enough pairs and beds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.wording import micro

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.rows import Row
    from sojourn.statistics.interval import Interval


def soundness_findings(rows: list[Row], bed_ns: float, control: Interval | None) -> list[Finding]:
    """Return findings about the device latencies; `control` is an A/A difference significantly different from zero, or
    None."""
    latencies = [row for row in rows if row.quantity == "device_latency" and row.statistic in ("mean", "pooled")]
    return [*_a_a_nonzero(control), *_below_floor(latencies, bed_ns), *_estimators_disagree(rows)]


def _a_a_nonzero(control: Interval | None) -> Iterator[Finding]:
    if control is not None:
        size = control.estimate
        sentence = (
            "the A/A control differs significantly from zero: two measurements of the direct link differ by "
            f"{micro(size)} one way"
        )
        yield Finding("a_a_nonzero", sentence, size)


def _estimators_disagree(rows: list[Row]) -> Iterator[Finding]:
    """Return a finding where the mean lies outside the interval of the pseudomedian: a few pairs are far off on one
    side."""
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
            f"the mean of the pairs and their pseudomedian (Hodges and Lehmann) are {told[places[0]]}: a few pairs "
            "determine the mean, so look at the tail of the delays"
        )
        yield Finding("estimators_disagree", sentence, worst, places)


def _below_floor(rows: list[Row], bed_ns: float) -> Iterator[Finding]:
    """Return findings for latencies below zero by more than the resolution, over all cells: no device saves time."""
    for row in rows:
        value = row.value
        pooled = row.statistic == "pooled" and row.reference == DIRECT and row.device != A_A
        if pooled and value.high is not None and value.high < 0 and value.estimate < -bed_ns:
            sentence = f"the path with {row.device} is {micro(-value.estimate)} faster than the direct link"
            yield Finding("below_floor", sentence, value.estimate, (Place(row.device),))
