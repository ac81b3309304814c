"""The duration of a plan without its trials, for any method. Each method estimates its own trials.

The estimate is for an idle machine; losses add their timeouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.plan.ask import Estimate

if TYPE_CHECKING:
    from sojourn.plan.ask import Limit
    from sojourn.plan.types import Plan

AROUND_NS, AROUND_SIMULATED_NS = 4_000_000_000, 1_000_000_000
"""The time to build the bed, record facts before and after, and warm up."""

SESSION_NS, SESSION_SIMULATED_NS = 1_700_000_000, 200_000_000
"""The time for each further bed: removed, built, warmed up. Measured on two cores."""

AFTERWARDS_NS = 6_000_000_000
"""The time for analysis and report of a short run."""

EMULATOR_NS = 60_000
"""The delay that a sleeping emulator adds in each direction: two wake-ups."""


def estimated(plan: Plan, blocks: int, probes: int, measuring_ns: int) -> Estimate:
    """Return the estimate for these trials, limited by the plan's time limits."""
    limit = plan.ask.limit
    at_most = getattr(plan.sections[limit.section], "at_most_ns", None) if limit else None
    measuring = measuring_ns
    if limit is not None and at_most is not None:
        measuring = min(measuring_ns, max(at_most, round(measuring_ns * _least_share(plan, limit))))
    around = AROUND_SIMULATED_NS if plan.bed.simulated else AROUND_NS
    around += (plan.bed.sessions - 1) * (SESSION_SIMULATED_NS if plan.bed.simulated else SESSION_NS)
    total = measuring + around + AFTERWARDS_NS
    if (budget := plan.study.budget_ns) is not None:
        least = measuring // plan.bed.sessions  # the first session is always measured completely
        measuring = min(measuring, max(budget, least))
        total = min(total, max(budget, least + around) + AFTERWARDS_NS)
    return Estimate(blocks, probes, measuring, total)


def least_rounds(plan: Plan, limit: Limit) -> int:
    """Return the rounds that are measured even if there is no time left: some on each bed."""
    sessions = plan.bed.sessions
    return max(limit.least, sessions * plan.ask.session_batches if sessions > 1 else 1)


def _least_share(plan: Plan, limit: Limit) -> float:
    if limit.rounds is None:
        return 0.0
    rounds: int = getattr(plan.sections[limit.section], limit.rounds)
    return min(1.0, least_rounds(plan, limit) / rounds)
