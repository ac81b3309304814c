"""Whether a plan needs clock trials where its hosts have two clocks (`conduct/clock_trials.py`). Reaches no host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices import emulator_label, fellow_of

if TYPE_CHECKING:
    from sojourn.plan.types import Plan


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
