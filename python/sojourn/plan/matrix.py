"""The ask of a method with a fixed matrix of streams: every combination of factors, over every path, in rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.streamable import Allowed, check_streams, paced_rates
from sojourn.plan.streams import StreamPlan, TrialsPlan, ends
from sojourn.plan.trials import describe_trials, estimate_trials, expand_trials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan

RESTFUL_PPS = 2_000.0
"""A sender sleeps between frames up to this rate."""


def ask_streams(  # noqa: PLR0913 - one for each way in which such methods differ
    *,
    kinds: tuple[str, ...] = ("one-way",),
    overload: bool = False,
    tcp: bool = False,
    restless: bool = False,
    sessions: bool = False,
    hypotheses: tuple[str, ...] = (),
    more: Mapping[str, type] | None = None,
    not_simulated: str | None = None,
    logs_emulators: bool = False,
    joins_clocks: bool = False,
    one_clock: bool = True,
    check: Callable[[Plan, Lookup], None] | None = None,
    is_compared: bool = False,
) -> Ask:
    """Return the ask, with `more` sections and a further check.

    `is_compared`: the delay that a device adds is a difference of two paths, and is the headline. `tcp`: whether
    streams may be messages over TCP, whose segments the method records. `restless`: frames follow each other closely,
    unless slow ones are configured; see `Ask.restful`.
    """
    allowed = Allowed(kinds=kinds, overload=overload, tcp=tcp)

    def check_all(plan: Plan, given: Lookup) -> None:
        if check is not None:
            check(plan, given)
        check_streams(plan, given, allowed)

    return Ask(
        sections={"stream": StreamPlan, "trials": TrialsPlan} | dict(more or {}),
        expand=expand_trials,
        estimate=estimate_trials,
        check=check_all,
        describe=describe_trials,
        limit=Limit("trials", "rounds", 2),
        hypotheses=hypotheses,
        words={"device": "bed.devices", "size": "stream.frame_bytes", "rounds": "trials.rounds"},
        logs_emulators=logs_emulators,
        pipes=lambda plan: plan.stream.pipe,
        ends=ends,
        sessions=sessions,
        headline=is_compared,
        twins="spread",
        not_simulated=not_simulated,
        restful=is_restful if restless else lambda _: True,
        joins_clocks=joins_clocks,
        one_clock=one_clock,
    )


def is_restful(plan: Plan) -> bool:
    """Return whether every stream of a plan leaves its sender time to sleep."""
    shares = any(rate.share is not None for rate in plan.stream.rates)
    steady = all(schedule in ("regular", "poisson") for schedule in plan.stream.schedule)
    slow = all(pps <= RESTFUL_PPS for _, _, pps in paced_rates(plan))
    return steady and slow and not shares and not any(plan.stream.load)
