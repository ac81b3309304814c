"""How long a plan takes: what surrounds the trials, whatever the method. Each method estimates its own trials.

Honest on a quiet machine; losses add their timeouts, and a busy machine its own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.plan.ask import Estimate

if TYPE_CHECKING:
    from sojourn.plan.types import Plan

AROUND_NS, AROUND_SIMULATED_NS = 4_000_000_000, 1_000_000_000
"""Building the bed, its facts before and after, warm-up."""

SESSION_NS, SESSION_SIMULATED_NS = 1_700_000_000, 200_000_000
"""Each further bed: taken down, built, warmed up. Measured on two cores."""

AFTERWARDS_NS = 6_000_000_000
"""Analysis and report of a short run."""

EMULATOR_NS = 60_000
"""What an emulator that sleeps between packets adds to each way: it is woken, twice with a delay."""


def estimated(plan: Plan, blocks: int, probes: int, measuring_ns: int) -> Estimate:
    """The estimate of so many trials; no longer than the plan allows."""
    limit = plan.ask.limit
    at_most = getattr(plan.sections[limit.section], "at_most_ns", None) if limit else None
    measuring = measuring_ns if at_most is None else min(measuring_ns, at_most)
    around = AROUND_SIMULATED_NS if plan.bed.simulated else AROUND_NS
    around += (plan.bed.sessions - 1) * (SESSION_SIMULATED_NS if plan.bed.simulated else SESSION_NS)
    total = measuring + around + AFTERWARDS_NS
    if (budget := plan.study.budget_ns) is not None:
        least = measuring // plan.bed.sessions  # the first session is measured whatever it takes
        measuring = min(measuring, max(budget, least))
        total = min(total, max(budget, least + around) + AFTERWARDS_NS)
    return Estimate(blocks, probes, measuring, total)
