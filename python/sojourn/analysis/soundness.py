"""Are the figures themselves sound: enough pairs, a direct link that equals itself, no device faster than none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.wording import micro, percent
from sojourn.statistics.signed_rank import least_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.rows import Row


def soundness_findings(rows: list[Row], bed_ns: float) -> list[Finding]:
    """What is wrong with the device latencies."""
    latencies = [row for row in rows if row.quantity == "device_latency" and row.statistic in ("mean", "pooled")]
    return [*_too_few(latencies), *_a_a_nonzero(latencies), *_below_floor(latencies, bed_ns)]


def _too_few(rows: list[Row]) -> Iterator[Finding]:
    short = sorted((row for row in rows if row.value.low is None), key=lambda row: row.value.n)
    if short:
        worst = short[0].value
        needed = least_pairs(worst.level)
        sentence = f"{worst.n} pairs give no interval of {percent(worst.level)}: at least {needed} are needed"
        yield Finding("too_few_pairs", sentence, float(worst.n), tuple(Place(row.device, row.cell) for row in short))


def _a_a_nonzero(rows: list[Row]) -> Iterator[Finding]:
    for row in rows:
        if row.device == A_A and row.statistic == "pooled" and row.value.excludes(0):
            size = row.value.estimate
            sentence = (
                "the A/A control differs significantly from zero: two measurements of the direct link differ by "
                f"{micro(size)} one way"
            )
            yield Finding("a_a_nonzero", sentence, size)


def _below_floor(rows: list[Row], bed_ns: float) -> Iterator[Finding]:
    """Below zero by more than the bed resolves, over all cells: no device takes time away."""
    for row in rows:
        value = row.value
        pooled = row.statistic == "pooled" and row.reference == DIRECT and row.device != A_A
        if pooled and value.high is not None and value.high < 0 and value.estimate < -bed_ns:
            sentence = f"the path with {row.device} is {micro(-value.estimate)} faster than the direct link"
            yield Finding("below_floor", sentence, value.estimate, (Place(row.device),))
