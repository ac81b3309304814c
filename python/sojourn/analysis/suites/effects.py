"""Effects on a rate besides its scatter over repetitions, in frames per second, for its uncertainty budget.

The search's resolution, the tolerance of the offered rate, the bias of finite trials, and the loss that passing trials
cannot exclude. The module does not combine them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.suites.cells import cell_of
from sojourn.analysis.suites.limits import burst_pace
from sojourn.analysis.suites.searches import burst_bounds
from sojourn.statistics.loss_decision import finite_trial_excess, offered_tolerance, unseen_events, unseen_loss

if TYPE_CHECKING:
    from sojourn.analysis.factors import Factors
    from sojourn.analysis.suites import Sought
    from sojourn.analysis.suites.searches import Search, Terms


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects on one rate. Standard uncertainties unless stated otherwise."""

    resolution_pps: float
    """The true rate lies between the bounds: rectangular, (upper - lower)/√12; it is above the reported one."""
    offered_pps: float
    """Trials keep within a share of the offered rate: the largest deviation observed at the bound, rectangular."""
    finite_trial_pps: float | None
    """The largest excess of the rate due to the trial's duration: buffer over duration. A bias, not an uncertainty;
    None where the buffer was not measured (RFC 9004)."""
    unseen_loss: float | None
    """The largest loss ratio that passes with a probability of 5 %, for independent frames; only for a goal of 0."""
    unseen_events: float | None
    """The same for events of loss, such as stalls [1/s]."""


def effects_of(sought: Sought, searches: list[Search], terms: Terms, cells: dict[Factors, int]) -> Effects | None:
    """Return the effects on a rate; None where there is no rate."""
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


def buffer_frames(
    searches: list[Search], device: str, cell: int, rate_pps: float, cells: dict[Factors, int]
) -> float | None:
    """Return the frames that fit in a device's buffer: the longest bursts minus what it forwards meanwhile (RFC
    9004)."""
    found = []
    for one in searches:
        if one.test == "back-to-back" and (one.device, cell_of(one, cells)) == (device, cell):
            lower, upper = burst_bounds(one)
            pace = burst_pace(one, lower or 0)
            if lower and upper and pace > rate_pps:
                found.append(lower * (1 - rate_pps / pace))
    return float(np.mean(found)) if found else None
