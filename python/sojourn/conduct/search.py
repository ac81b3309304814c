"""Searches for the highest load that meets a loss ratio: MLRsearch, and binary search. No I/O.

Each gets a function that measures one load for one duration, and its bounds. A trial whose sender was *short*, evenly
slower than requested, still counts: a device that lost too much at a lower load would lose too much at a higher one. If
it did not lose too much, the load is out of reach: the search continues below, and an upper bound of this kind is the
tester's and is dropped. For a load that was not sent evenly the measurer raises `LoadMissed`, and the search restarts
below it.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from MLRsearch import AbstractMeasurer, Config, GoalResult, MeasurementResult, MultipleLossRatioSearch, SearchGoal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEAST_SHARE = 1e-4
"""The lowest load of a search, as a share of its highest: a path that loses frames there is dead or broken."""

RETREAT = 0.97
RETREATS = 12
"""How often, and at least by what factor, a search reduces a highest load that the tester misses."""

LEAST_TRIALS = 2
"""The trials of final length that a lower bound needs if the search ran out of time: one is not enough."""

TIME_WAS_UP = "time was up before the bounds were as close as requested"


class LoadMissed(Exception):  # noqa: N818 - an event that a search knows how to go on from
    """The tester repeatedly missed this load; `below_pps` is a load that it can probably send."""

    def __init__(self, rate_pps: float, achieved_pps: float) -> None:
        super().__init__(f"the tester cannot send {rate_pps:.0f} packets/s as configured")
        self.below_pps = RETREAT * min(rate_pps, achieved_pps)


class Unanswerable(Exception):  # noqa: N818 - an answer of its own kind
    """A search has no result, for the reason in the message; this is not a failure of the run."""


class Measured(Protocol):
    """What a search needs to know of a trial."""

    @property
    def frames_sent(self) -> int: ...

    @property
    def lost(self) -> int: ...

    @property
    def loss_ratio(self) -> float: ...

    @property
    def frames_due(self) -> int: ...

    @property
    def short(self) -> bool: ...


class Measure(Protocol):
    """Measures one load."""

    def __call__(self, rate_pps: float, seconds: float, *, verifies: bool = False) -> Measured: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """The goals of a search, and its stopping rules."""

    goals: Sequence[float]
    width: float
    initial_seconds: float
    final_seconds: float
    sum_seconds: float
    exceed_ratio: float
    """The share of the time at one load that may miss a goal above 0; for a goal of 0, no trial may."""
    verify_loss: bool
    at_most_seconds: float
    """The time limit of the search, which then returns its present bounds."""

    @property
    def trials(self) -> int:
        """The number of trials of final length that decide a load."""
        return max(1, math.ceil(self.sum_seconds / self.final_seconds - 1e-9))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The highest load that met a goal, and the lowest that did not; None if there was none."""

    goal: float
    lower_pps: float | None
    upper_pps: float | None
    conditional_pps: float | None = None
    """The rate received at the lower bound: equal to it if no loss is allowed."""
    sentence: str | None = None
    """Why the bounds are further apart than configured, or missing."""
    ceiling_pps: float | None = None
    """The highest load of the search after retreats: the tester's limit on this path if it missed higher ones."""


def find(algorithm: str, measure: Measure, max_pps: float, terms: Terms) -> list[Bounds]:
    """Return bounds for each goal, below any load that the tester misses."""
    search = {"mlrsearch": mlr, "binary": halve}[algorithm]
    end = time.monotonic() + terms.at_most_seconds
    for _ in range(RETREATS):
        left = replace(terms, at_most_seconds=max(1e-9, end - time.monotonic()))
        try:
            return [replace(one, ceiling_pps=max_pps) for one in search(measure, max_pps, left)]
        except LoadMissed as missed:
            max_pps = min(RETREAT * max_pps, missed.below_pps)
        if max_pps <= 0 or time.monotonic() > end:
            break
    sentence = (
        f"the tester does not reach the configured rates, down to {max_pps:.0f} packets/s: stop other programs on "
        "this machine"
    )
    return [Bounds(goal, None, None, sentence=sentence) for goal in terms.goals]


def mlr(measure: Measure, max_pps: float, terms: Terms) -> list[Bounds]:
    """Run MLRsearch (draft-ietf-bmwg-mlrsearch) for all goals at once, with the library of its authors."""
    goals = {ratio: search_goal(ratio, terms) for ratio in terms.goals}
    config = Config()
    config.goals = list(goals.values())
    config.min_load, config.max_load = max_pps * LEAST_SHARE, max_pps
    config.search_duration_max = terms.at_most_seconds
    config.warmup_duration = None
    search, reach = MultipleLossRatioSearch(config=config), Reach(terms.final_seconds)
    sentence = None
    try:
        search.search(Measurer(measure, reach), debug=logging.getLogger(__name__).debug)
    except RuntimeError:  # the library reports its time limit only in this way
        sentence = TIME_WAS_UP
    found = [reach.judged(bounds_of(search, ratio, goal, sentence)) for ratio, goal in goals.items()]
    return [reach.loosely(one) if sentence and one.lower_pps is None else one for one in found]


def search_goal(ratio: float, terms: Terms) -> SearchGoal:
    """Return one goal as an object of the library."""
    return SearchGoal(
        loss_ratio=ratio,
        exceed_ratio=terms.exceed_ratio if ratio > 0 else 0.0,
        relative_width=terms.width,
        initial_trial_duration=min(terms.initial_seconds, terms.final_seconds),
        final_trial_duration=terms.final_seconds,
        duration_sum=max(terms.sum_seconds, terms.final_seconds),
        preceding_targets=2,
        expansion_coefficient=2,
        fail_fast=False,
    )


def bounds_of(search: MultipleLossRatioSearch, ratio: float, goal: SearchGoal, sentence: str | None) -> Bounds:
    """Return the result for one goal, whether or not the search was complete."""
    target = search.scaling.goal_to_final_target[goal]
    result = GoalResult.from_bounds(search.database.get_relevant_bounds(target=target))
    lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
    if lower is None and sentence is None:
        sentence = lost_everywhere(ratio)
    conditional = result.conditional_throughput
    return Bounds(
        ratio,
        None if lower is None else float(lower),
        None if upper is None else float(upper),
        None if conditional is None else float(conditional),
        sentence,
    )


def lost_everywhere(goal: float) -> str:
    """Return why a search has no lower bound."""
    what = f"more than {goal:.3%} of the frames is" if goal else "frames are"
    return f"{what} lost at every load that was tried"


@dataclass
class Reach:
    """The loads that the tester could not reach, and the highest loss ratio of the device at each."""

    final_seconds: float
    worst: dict[float, float] = field(default_factory=dict)
    tried: list[tuple[float, float, float]] = field(default_factory=list)
    """Every load that was sent, with duration in seconds and loss ratio."""

    def note(self, rate_pps: float, seconds: float, outcome: Measured) -> None:
        """Record a trial."""
        if not outcome.short:
            self.tried.append((rate_pps, seconds, outcome.loss_ratio))
        if outcome.short:
            self.worst[rate_pps] = max(outcome.loss_ratio, self.worst.get(rate_pps, 0.0))

    def judged(self, found: Bounds) -> Bounds:
        """Return the bounds, without an upper bound that is the tester's limit and not the device's."""
        upper = found.upper_pps
        close = next(
            (load for load in self.worst if upper is not None and math.isclose(load, upper, rel_tol=1e-9)), None
        )
        if close is None or self.worst[close] > found.goal:
            return found
        return replace(found, upper_pps=None, sentence=f"the tester cannot send {close:.0f} packets/s on this path")

    def loosely(self, found: Bounds) -> Bounds:
        """Return bounds for a search without enough time.

        The upper bound is the lowest load that missed the goal in a trial of any length; the lower bound is the highest
        load below it that met the goal in two trials of final length.
        """
        lost = min((load for load, _, ratio in self.tried if ratio > found.goal), default=math.inf)
        long = [load for load, seconds, _ in self.tried if seconds >= self.final_seconds - 1e-9 and load < lost]
        twice = (load for load in long if sum(math.isclose(load, one, rel_tol=1e-9) for one in long) >= LEAST_TRIALS)
        held = max(twice, default=None)
        return replace(found, lower_pps=held, upper_pps=None if math.isinf(lost) else lost)


class Measurer(AbstractMeasurer):  # type: ignore[misc]
    """Adapts our trials to the library."""

    def __init__(self, measure: Measure, reach: Reach) -> None:
        self._measure = measure
        self._reach = reach

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        """Measure one trial; frames due but not sent count as lost at its load."""
        outcome = self._measure(intended_load, intended_duration)
        self._reach.note(intended_load, intended_duration, outcome)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            intended_count=outcome.frames_due,
            offered_count=outcome.frames_sent,
            loss_count=outcome.lost,
        )


def halve(measure: Measure, max_pps: float, terms: Terms) -> list[Bounds]:
    """Binary search for each goal separately: a load is a lower bound if all its trials meet the goal.

    With `verify_loss` a trial that misses it is repeated at once, and counts only if it misses again (ETSI GS NFV-TST
    009, 12.3.3: binary search with loss verification).
    """
    end = time.monotonic() + terms.at_most_seconds
    return [halve_for(goal, measure, max_pps, terms, end) for goal in terms.goals]


def halve_for(goal: float, measure: Measure, max_pps: float, terms: Terms, end: float) -> Bounds:
    """Search for one goal; the highest load is tried first."""
    kept: dict[float, float] = {}
    reach = Reach(terms.final_seconds)

    def keeps(rate: float) -> bool:
        for verifies in (False, True) if terms.verify_loss else (False,):
            outcome = measure(rate, terms.final_seconds, verifies=verifies)
            reach.note(rate, terms.final_seconds, outcome)
            if outcome.loss_ratio <= goal:
                kept[rate] = max(outcome.loss_ratio, kept.get(rate, 0.0))
                return not outcome.short
        return False

    def holds(rate: float) -> bool:
        if all(keeps(rate) for _ in range(terms.trials)):
            return True
        kept.pop(rate, None)
        return False

    if holds(max_pps):
        return bounds(goal, max_pps, None, kept)
    lower, upper = max_pps * LEAST_SHARE, max_pps
    while (upper - lower) / upper > terms.width:
        if time.monotonic() > end:
            return reach.judged(bounds(goal, lower if lower in kept else None, upper, kept, TIME_WAS_UP))
        middle = (lower + upper) / 2 if lower in kept else math.sqrt(lower * upper)
        lower, upper = (middle, upper) if holds(middle) else (lower, middle)
    if lower not in kept:
        return bounds(goal, None, upper, kept, lost_everywhere(goal))
    return reach.judged(bounds(goal, lower, upper, kept))


def bounds(
    goal: float, lower: float | None, upper: float | None, kept: dict[float, float], sentence: str | None = None
) -> Bounds:
    """Return the bounds of one goal with the rate received at the lower one."""
    conditional = None if lower is None else lower * (1 - kept[lower])
    return Bounds(goal, lower, upper, conditional, sentence)


def longest(holds: Callable[[int], bool], most: int, width: float, *, least: int = 1) -> tuple[int, int | None]:
    """The greatest count that holds and the least that does not, to a relative width; (0, least) if not even the least.

    Grows by doubling, then halves: a count that does not hold may be far below the greatest that is tried.
    """
    lower, upper = 0, None
    count = least
    while upper is None:
        if not holds(count):
            upper = count
        elif count >= most:
            return count, None
        else:
            lower, count = count, min(most, 2 * count)
    while upper - lower > max(1, int(width * upper)):
        middle = (lower + upper) // 2
        lower, upper = (middle, upper) if middle and holds(middle) else (lower, middle)
    return lower, upper
