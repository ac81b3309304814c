"""The bounds of a rate from trials at several loads: lower bound, upper bound, or undecided; conditional throughput.

The definitions are MLRsearch's (draft-ietf-bmwg-mlrsearch): full-length trials always count, shorter ones only by their
excess over the exceed ratio; a load is a bound when the missing trials could not change it. The module does not search:
it classifies what was measured, however the loads were chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SAME_LOAD = 1e-6
"""Loads that differ by less than this share are one load."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a rate: at most this loss, in all but `exceed_ratio` of `duration_sum_s` of long trials."""

    loss_ratio: float = 0.0
    final_s: float = 1.0
    duration_sum_s: float = 1.0
    exceed_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: its load, its intended duration, and its frame loss ratio."""

    load: float
    duration_s: float
    loss_ratio: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest load that meets the goal below the smallest that does not; None where there is none."""

    lower: float | None
    upper: float | None
    conditional: float | None
    undecided: tuple[float, ...] = ()
    trials: int = 0
    """The number of long trials at the lower bound's load, which decided it."""


def relevant_bounds(trials: Iterable[Trial], goal: Goal) -> Bounds:
    """Return the bounds that all trials of a search give together, and the conditional throughput at the lower one."""
    loads = by_load(trials)
    verdicts = {load: classify(several, goal) for load, several in loads.items()}
    upper = min((load for load, keeps in verdicts.items() if keeps is False), default=None)
    below = [load for load, keeps in verdicts.items() if keeps and (upper is None or load < upper)]
    lower = max(below, default=None)
    conditional = None if lower is None else lower * (1 - quantile_loss(loads[lower], goal))
    undecided = tuple(load for load, keeps in verdicts.items() if keeps is None)
    deciding = 0 if lower is None else sum(is_long(one, goal) for one in loads[lower])
    return Bounds(lower, upper, conditional, undecided, deciding)


LEAST_TRIALS = 2
"""The least number of long trials for a loose lower bound: one decides nothing."""


def loose_bounds(trials: Iterable[Trial], goal: Goal) -> Bounds:
    """Return loose bounds, for too few trials: the highest load that met the goal in at least two long trials, below
    all loads that failed it once. One bad trial can make it far too low."""
    loads = by_load(trials)
    upper = min(
        (load for load, several in loads.items() if any(one.loss_ratio > goal.loss_ratio for one in several)),
        default=None,
    )
    long = {load: [one for one in several if is_long(one, goal)] for load, several in loads.items()}
    below = [load for load, several in long.items() if len(several) >= LEAST_TRIALS and (upper is None or load < upper)]
    if not below:
        return Bounds(None, upper, None)
    best = max(below)
    worst = max(one.loss_ratio for one in long[best])
    return Bounds(best, upper, best * (1 - worst), trials=len(long[best]))


def is_long(trial: Trial, goal: Goal) -> bool:
    """Return whether a trial is as long as the goal requires."""
    return trial.duration_s >= goal.final_s - 1e-9


def by_load(trials: Iterable[Trial]) -> dict[float, list[Trial]]:
    """Return the trials of each load, in rising order of loads."""
    loads: dict[float, list[Trial]] = {}
    for trial in sorted(trials, key=lambda one: one.load):
        last = next(reversed(loads), None)
        same = last is not None and trial.load <= last * (1 + SAME_LOAD)
        loads.setdefault(last if same and last is not None else trial.load, []).append(trial)
    return loads


def classify(trials: list[Trial], goal: Goal) -> bool | None:
    """Return whether the trials of one load make it a lower bound (True), an upper bound (False) or neither yet
    (None)."""
    good_long = _seconds(trials, goal, long=True, good=True)
    bad_long = _seconds(trials, goal, long=True, good=False)
    allowance = goal.exceed_ratio / (1 - goal.exceed_ratio)
    excess = _seconds(trials, goal, long=False, good=False) - allowance * _seconds(trials, goal, long=False, good=True)
    bad = bad_long + max(0.0, excess)
    whole = max(good_long + bad, goal.duration_sum_s)
    limit = whole * goal.exceed_ratio + 1e-9
    optimistic, pessimistic = bad <= limit, whole - good_long <= limit
    return optimistic if optimistic == pessimistic else None


def quantile_loss(trials: list[Trial], goal: Goal) -> float:
    """Return the loss ratio that long trials exceed for at most the exceed ratio of the time; missing time counts as
    lost."""
    long = sorted((one for one in trials if is_long(one, goal)), key=lambda one: one.loss_ratio)
    remaining = max(goal.duration_sum_s, sum(one.duration_s for one in long)) * (1 - goal.exceed_ratio)
    for trial in long:
        remaining -= trial.duration_s
        if remaining <= 1e-9:
            return trial.loss_ratio
    return 1.0


def _seconds(trials: list[Trial], goal: Goal, *, long: bool, good: bool) -> float:
    return sum(
        one.duration_s for one in trials if is_long(one, goal) == long and (one.loss_ratio <= goal.loss_ratio) == good
    )


def verified(trials: Iterable[Trial], loss_ratio: float) -> tuple[list[Trial], list[Trial]]:
    """Return the trials that count, and those set aside: above the goal's loss, unconfirmed by the previous or next
    trial.

    `trials` are in the order of measurement; a loss is verified by repeating its load at once.
    """
    ordered = list(trials)
    kept: list[Trial] = []
    aside: list[Trial] = []
    for before, trial, after in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
        good = trial.loss_ratio <= loss_ratio
        repeated = any(
            one is not None and one.loss_ratio > loss_ratio and abs(one.load - trial.load) <= SAME_LOAD * trial.load
            for one in (before, after)
        )
        (kept if good or repeated else aside).append(trial)
    return kept, aside
