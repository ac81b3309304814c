"""How the trials of a run are dealt to its sessions, and how many are measured however little time there is.

The conductor measures by these functions (`conduct/run.py`, `conduct/loop.py`), and forecasts are made with them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan


def batches_of(trials: Sequence[Trial[Any]]) -> list[list[Trial[Any]]]:
    """Return the batches: trials that follow each other and share what is set up once."""
    return [list(several) for _, several in groupby(trials, key=lambda trial: trial.batch)]


def sessions_for(batches: int, asked: int, least: int) -> int:
    """Return how many sessions of at least `least` batches there are in so many batches, at most as many as asked."""
    return max(1, min(asked, batches // least))


def share_of_session(batches: int, sessions: int) -> int:
    """Return how many batches the first of so many sessions is to measure: its share, at least one."""
    return -(-batches // sessions)


def of_one_session(owed: Sequence[Trial[Any]], sessions: int) -> list[Trial[Any]]:
    """Return what the first of so many sessions is to measure."""
    batches = batches_of(owed)
    return [trial for batch in batches[: share_of_session(len(batches), sessions)] for trial in batch]


def limit_ns(plan: Plan) -> int | None:
    """Return the time that the plan allows for measuring."""
    limit = plan.ask.limit
    found: int | None = plan.sections[limit.section].at_most_ns if limit else None
    return found


def least_in_session(plan: Plan) -> int:
    """Return the batches that each session of a plan measures at least."""
    return plan.ask.session_batches if plan.bed.sessions > 1 else 1


def least_measured(plan: Plan, trials: Sequence[Trial[Any]]) -> tuple[list[Trial[Any]], int]:
    """Return the trials that are measured even if no time is left from the beginning, and in how many sessions."""
    limit, batches = plan.ask.limit, batches_of(trials)
    sessions = sessions_for(len(batches), plan.bed.sessions, plan.ask.session_batches)
    done = 0
    for left in range(sessions, 0, -1):
        share = share_of_session(len(batches) - done, left)
        end = done + min(share, least_in_session(plan))
        if left == 1 and limit is not None:
            while end < done + share and batches[end][0].round < limit.least:
                end += 1
        done = end
    return [trial for batch in batches[:done] for trial in batch], sessions
