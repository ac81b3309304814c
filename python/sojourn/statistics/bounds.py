"""What trials at several loads say of a rate: lower bound, upper bound, or not decided; and conditional throughput.

The definitions are MLRsearch's (draft-ietf-bmwg-mlrsearch): trials as long as the goal's count by themselves, shorter
ones only as far as they are worse than the exceed ratio allows; a load is a bound when the trials still missing could
not change it. It searches nothing: it judges what was measured, whoever chose the loads.
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
    """What a rate must keep: at most this loss, in all but `exceed_ratio` of `duration_sum_s` of long trials."""

    loss_ratio: float = 0.0
    final_s: float = 1.0
    duration_sum_s: float = 1.0
    exceed_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: its load, how long it was meant to last, and the share of frames that it lost."""

    load: float
    duration_s: float
    loss_ratio: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest load that keeps the goal below the smallest that does not; None where no such was seen."""

    lower: float | None
    upper: float | None
    conditional: float | None
    undecided: tuple[float, ...] = ()
    trials: int = 0
    """Trials of the lower bound's load that count by themselves: all that decided it."""


def relevant_bounds(trials: Iterable[Trial], goal: Goal) -> Bounds:
    """The bounds that all trials of a search together give, and the conditional throughput at the lower one."""
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
"""As long as the goal's, that a lower bound rests on where there was no time for all: one decides nothing."""


def loose_bounds(trials: Iterable[Trial], goal: Goal) -> Bounds:
    """What can be said where there were too few trials for more: the highest load that kept the goal in two long trials
    or more, below all that did not once. One bad trial can make it far too low."""
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
    """Whether a trial is as long as the goal asks, and so counts by itself."""
    return trial.duration_s >= goal.final_s - 1e-9


def by_load(trials: Iterable[Trial]) -> dict[float, list[Trial]]:
    """The trials of each load, loads rising."""
    loads: dict[float, list[Trial]] = {}
    for trial in sorted(trials, key=lambda one: one.load):
        last = next(reversed(loads), None)
        same = last is not None and trial.load <= last * (1 + SAME_LOAD)
        loads.setdefault(last if same and last is not None else trial.load, []).append(trial)
    return loads


def classify(trials: list[Trial], goal: Goal) -> bool | None:
    """Whether the trials of one load make it a lower bound (True), an upper bound (False) or neither yet (None)."""
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
    """The loss ratio that long trials exceed for no more than the exceed ratio of the time; missing time lost all."""
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
    """The trials that count, and those set aside: beyond the goal, but the trial before or after at the load was not.

    `trials` are in the order in which they were made; a loss is verified by trying its load again at once.
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
