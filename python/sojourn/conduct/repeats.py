"""Repeat the deviating cells of a tapped run by themselves, at the end of each session.

A device's cell deviates if its extra delay over the reference is far from that of the device's other cells of the same
size. In one session this is decided with few data; whether it holds, and whether it persists when nothing else is
measured in between, is judged later (`methods.taps.analyse.repeats`).
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sojourn.devices import references
from sojourn.plan.types import A_A, DIRECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sojourn.conduct.tester import Tester
    from sojourn.plan.trial import Trial
    from sojourn.plan.trials import Factors

REPEAT = "repeat"
"""The purpose of these trials, which no figure of the rounds uses."""

MARGIN = 0.25
"""The least deviation, as a share of the reference's delay."""

BEYOND_OTHERS = 3.0
"""The least deviation, in multiples of the median deviation of the device's other cells."""

LEAST_CELLS = 3
MOST = 4
"""The most cells repeated in one session; the largest deviations are chosen."""

VISITS = 4
"""The number of pairs of trials, of the device and of its reference."""

Means = dict[tuple[str, int], list[float]]
"""The mean delay between the taps in each trial of a session, in ns, by path and cell."""


class Standing(NamedTuple):
    """A deviating cell: the device's extra delay over the reference, minus the median of its cells."""

    device: str
    reference: str
    cell: int
    by_ns: float


def standing_out(means: Mapping[tuple[str, int], list[float]], cells: Mapping[int, Any]) -> list[Standing]:
    """Return the deviating cells, the largest deviation first."""
    paths = {device for device, _ in means} - {DIRECT, A_A}
    found = []
    for device in sorted(paths - {references()[-1]}):
        reference = next((one for one in references() if one in paths and one != device), None)
        for several in alike(cells).values() if reference is not None else ():
            both = [cell for cell in several if (device, cell) in means and (reference, cell) in means]
            over = {cell: _mean(means[device, cell]) - _mean(means[str(reference), cell]) for cell in both}
            found += [
                Standing(device, str(reference), cell, by)
                for cell, by in _apart(over).items()
                if abs(by) > MARGIN * abs(_mean(means[str(reference), cell]))
            ]
    return sorted(found, key=lambda one: -abs(one.by_ns))


def alike(cells: Mapping[int, Factors]) -> dict[Factors, list[int]]:
    """Group the cells that differ only in their rate."""
    groups: dict[Factors, list[int]] = {}
    for cell, factors in cells.items():
        groups.setdefault(replace(factors, rate_pps=None, interval_ns=None, rate_share=None), []).append(cell)
    return groups


def _apart(over: dict[int, float]) -> dict[int, float]:
    """Return the deviations from the median of those cells that deviate much more than the others."""
    if len(over) < LEAST_CELLS:
        return {}
    middle = statistics.median(over.values())
    apart = {cell: value - middle for cell, value in over.items()}
    usual = {cell: statistics.median(abs(by) for other, by in apart.items() if other != cell) for cell in apart}
    return {cell: by for cell, by in apart.items() if abs(by) > BEYOND_OTHERS * usual[cell]}


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def repeat(tester: Tester, means: Means, trials: Mapping[tuple[str, int], Trial[Factors]]) -> None:
    """Measure the deviating cells again, each by itself: device and reference, in alternating order."""
    cells = {cell: trial.factors for (_, cell), trial in trials.items()}
    doubled = {path for path, _ in trials} & set(tester.session.plan.twins)
    for one in standing_out(means, cells)[:MOST]:
        tester.session.screen.say(f"repeating {one.device}, cell {one.cell}: it deviates by {one.by_ns / 1e3:.2g} µs")
        blocks: dict[str, list[int]] = {one.device: [], one.reference: []}
        for visit in range(VISITS):
            pair = (one.reference, one.device) if visit % 2 else (one.device, one.reference)
            for path in pair:
                planned = trials[path, one.cell]
                again = replace(planned, block=tester.number(), round=visit, visit=0, purpose=REPEAT,
                                second=path in doubled and visit % 4 in (1, 2))  # fmt: skip
                outcome = tester.measure(tester.asked(again, planned.factors.rate_pps))
                blocks[path].append(outcome.trial.block)
        tester.session.log("repeated", part=tester.session.part.number, device=one.device, reference=one.reference,
                           cell=one.cell, by_ns=one.by_ns, of_device=blocks[one.device],
                           of_reference=blocks[one.reference])  # fmt: skip
