"""The duration of a plan without its trials, for any method. Each method estimates its own trials.

The estimate is for an idle machine; losses add their timeouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Estimate
from sojourn.plan.clock_trials import clock_trials_ns
from sojourn.plan.sessions import least_measured, limit_ns
from sojourn.units import as_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan

AROUND_NS, AROUND_SIMULATED_NS = 4_000_000_000, 1_000_000_000
"""The time to build the bed, record facts before and after, and warm up."""

SESSION_NS, SESSION_SIMULATED_NS = 1_700_000_000, 200_000_000
"""The time for each further bed: removed, built, warmed up. Measured on two cores."""

AFTERWARDS_NS = 6_000_000_000
"""The time for analysis and report of a short run."""

EMULATOR_NS = 60_000
"""The delay that a sleeping emulator adds in each direction: two wake-ups."""


def estimated(plan: Plan, trials: Sequence[Trial[Any]], probes: int, measuring_ns: int, before_ns: int = 0) -> Estimate:
    """Return the estimate for these trials, limited by the plan's time limits.

    `before_ns` is what is measured before them, outside the limit: the tester's own trials.
    """
    at_most = limit_ns(plan)
    measuring = measuring_ns
    if at_most is not None and trials:
        least = len(least_measured(plan, trials)[0]) if ends_by_rounds(plan) else 0
        measuring = min(measuring_ns, max(at_most, measuring_ns * least // len(trials)))
    share = measuring / measuring_ns if measuring_ns else 1.0
    clocks = round(share * clock_trials_ns(plan, trials, measuring_ns))  # the time limit does not include them
    measuring += before_ns
    around = AROUND_SIMULATED_NS if plan.bed.simulated else AROUND_NS
    around += (plan.bed.sessions - 1) * (SESSION_SIMULATED_NS if plan.bed.simulated else SESSION_NS)
    total = measuring + clocks + around + AFTERWARDS_NS
    if (budget := plan.study.budget_ns) is not None:
        first = measuring // plan.bed.sessions  # the first session is always measured completely
        measuring = min(measuring, max(budget, first))
        total = min(total, max(budget, first + clocks // plan.bed.sessions + around) + AFTERWARDS_NS)
    return Estimate(len(trials), probes, measuring, total)


def ends_by_rounds(plan: Plan) -> bool:
    """Return whether the time limit leaves out rounds; searches share the time between them."""
    return plan.ask.limit is not None and plan.ask.limit.rounds is not None


def over_limit(plan: Plan, measuring_ns: int) -> str | None:
    """Return how the time limit is exceeded by the rounds that each bed measures in any case, or None.

    A run that ends by its interval or by a budget has a time limit in proportion to its beds.
    """
    limit, at_most = plan.ask.limit, limit_ns(plan)
    if limit is None or at_most is None or not ends_by_rounds(plan) or measuring_ns <= at_most:
        return None
    if plan.study.until or plan.study.budget_ns:
        return None
    least, sessions = least_measured(plan, plan.expand())
    rounds = len({trial.round for trial in least})
    where = f"on {sessions} beds" if sessions > 1 else "in any case"
    several = "round is" if rounds == 1 else "rounds are"
    return (
        f"{limit.section}.at_most = {as_duration(at_most)} is too short: at least {rounds} {several} measured {where}"
    )
