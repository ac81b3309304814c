"""Whether a plan needs clock trials where its hosts have two clocks (`conduct/clock_trials.py`), and their duration.
Reaches no host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.devices import emulator_label, fellow_of
from sojourn.plan.sessions import batches_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan

APART_SECONDS = 30.0
"""A clock may be slewed by 700 ppm, so its maximum error in the middle between two clock trials is 10 ms."""

CLOCK_TRIAL_NS = 1_000_000_000
"""The time of a clock trial: its exchanges take 0.8 s; between hosts on one idle machine each took 0.85 to 1.2 s."""


def needs_clock_trials(plan: Plan) -> bool:
    """Return whether nothing else compares the clocks: a plan's own exchanges are over paths without an emulator.

    Messages over TCP ask for no time, and need none: a receiver of bytes gives no delays.
    """
    if plan.ask.clock_trials:
        return True
    if not plan.ask.joins_clocks:
        return False
    timed = {trial.path for trial in plan.expand() if getattr(trial.factors, "engine", "") != "tcp"}
    return bool(timed) and all(is_emulated(plan, path) for path in timed)


def is_emulated(plan: Plan, path: str) -> bool:
    """Return whether a path is an emulator, or has cables of our emulator."""
    return fellow_of(path) in plan.bed.links or emulator_label(fellow_of(path)) is not None


def clock_trials_ns(plan: Plan, trials: Sequence[Trial[Any]], measuring_ns: int) -> int:
    """Return the time of the clock trials beside these trials, which take `measuring_ns` in all.

    Whether real hosts are two machines is not known before they are asked: on one machine, there are none.
    """
    if plan.bed.hosts is None or not trials or not needs_clock_trials(plan):
        return 0
    asked_s = plan.ask.clock_trials_apart_s
    apart_ns = (APART_SECONDS if asked_s is None else asked_s) * 1e9
    between = 1 + int(apart_ns * len(trials) // max(1, measuring_ns))
    batches = batches_of(trials)
    within = sum((len(batch) - 1) // between for batch in batches)
    return CLOCK_TRIAL_NS * (plan.bed.sessions * plan.ask.starts(plan) + len(batches) + within)
