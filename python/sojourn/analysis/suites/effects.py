"""What bears on a rate beside its scatter over repetitions, in frames per second, for a budget of its uncertainty.

The search's resolution, the tolerance of the offered rate, and what a finite trial adds; and what the decision that a
load passes cannot exclude. Does not combine them. And rates that contradict each other by their goals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.suites.cells import cell_of
from sojourn.analysis.suites.limits import burst_pace
from sojourn.analysis.suites.searches import burst_bounds
from sojourn.analysis.wording import percent
from sojourn.statistics.loss_decision import finite_trial_excess, offered_tolerance, unseen_events, unseen_loss

if TYPE_CHECKING:
    from sojourn.analysis.factors import Factors
    from sojourn.analysis.suites import Sought
    from sojourn.analysis.suites.searches import Search, Terms


@dataclass(frozen=True, slots=True)
class Effects:
    """Of one rate. Standard uncertainties where not said otherwise."""

    resolution_pps: float
    """The rate that just passes lies between the bounds: rectangular, (upper - lower)/√12; it lies above the rate."""
    offered_pps: float
    """Trials are kept within a share of the offered rate: the largest that was seen at the bound, rectangular."""
    finite_trial_pps: float | None
    """By how much the trial's duration makes the rate too high at most: its buffer over its duration. A bias, not an
    uncertainty; None where the buffer was not measured (RFC 9004)."""
    unseen_loss: float | None
    """The largest loss ratio that passes with a probability of 5 %, of independent frames; of a goal of 0 alone."""
    unseen_events: float | None
    """The same for events of loss, such as stalls [1/s]."""


def effects_of(sought: Sought, searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> Effects | None:
    """What bears on a rate; None where there is none."""
    if not len(sought.lowers) or sought.is_tester_limited or sought.is_below or not sought.decisions:
        return None
    rate = sought.rate().mean.estimate
    frames = min(one.frames for one in sought.decisions)
    seconds = min(one.seconds for one in sought.decisions)
    strict = sought.goal == 0
    buffer = buffer_frames(searches, sought.device, sought.cell, rate, cells)
    return Effects(
        resolution_pps=float(np.mean(sought.uppers - sought.lowers)) / math.sqrt(12),
        offered_pps=offered_tolerance(rate, max(one.offered_off for one in sought.decisions)),
        finite_trial_pps=None if buffer is None else finite_trial_excess(buffer, terms.final_s),
        unseen_loss=unseen_loss(frames) if strict and frames else None,
        unseen_events=unseen_events(seconds) if strict and seconds else None,
    )


def contradicted(sought: list[Sought]) -> list[Finding]:
    """Rates that allow a loss and yet are lower than one that allows less: what passes the latter passes both."""
    found: dict[Place, float] = {}
    groups: dict[tuple[str, str, int, str], list[Sought]] = {}
    for one in sought:
        if len(one.lowers) and not one.is_tester_limited:
            test = one.quantity.partition("_")[0] == "broadcast"
            groups.setdefault((str(test), one.device, one.cell, one.algorithm), []).append(one)
    for several in groups.values():
        stricter = 0.0
        for one in sorted(several, key=lambda one: one.goal):
            rate = one.rate().mean.estimate
            if rate < stricter:
                place = Place(one.device, one.cell)
                found[place] = max(1 - rate / stricter, found.get(place, 0.0))
            stricter = max(stricter, rate)
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = (
        f"the rate that allows a loss is {percent(worst)} lower than the one that allows less: this is scatter of the "
        "searches, for what passes with less loss passes with more"
    )
    return [Finding("goals_contradict", sentence, worst, places)]


def buffer_frames(
    searches: list[Search], device: str, cell: int, rate_pps: float, cells: dict[Factors, int]
) -> float | None:
    """The frames that a device's buffer takes in: the longest bursts without what it forwards meanwhile (RFC 9004)."""
    found = []
    for one in searches:
        if one.test == "back-to-back" and (one.device, cell_of(one, cells)) == (device, cell):
            lower, upper = burst_bounds(one)
            pace = burst_pace(one, lower or 0)
            if lower and upper and pace > rate_pps:
                found.append(lower * (1 - rate_pps / pace))
    return float(np.mean(found)) if found else None
