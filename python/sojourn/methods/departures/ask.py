"""Method "departures": the plan of senders whose departures a capture judges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.probes import (
    FLOOD_NS,
    LEAST_COUNT,
    PairsPlan,
    ProbePlan,
    Probing,
    check_probes,
    combine,
    describe_probes,
    estimate_probes,
    order_trials,
)
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.source import refuse
from sojourn.plan.types import DIRECT
from sojourn.plan.values import duration, list_of, one_of, whole

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan

PING_LEAST_NS = 1_000_000
"""ping takes its interval in milliseconds; a shorter interval is only possible as its flood."""


APART_S = 0.2
"""Where hosts have two clocks, how long ago the last clock trial may be when a trial begins. So each trial has one
directly before it and one behind it; only a flood of some milliseconds shares one with the next trial."""


@section
class DeparturesPlan:
    """The senders that are judged, and the number of departures."""

    tools: tuple[str, ...] = key(
        list_of(one_of("ping", "probe")), ("ping", "probe"), ("senders whose departures are measured")
    )
    count: int = key(whole(2, 10_000_000), 1000, "departures per trial")
    at_most_ns: int = key(duration(1_000_000, HOUR_NS), 60_000_000_000, "longest trial; slow intervals get fewer")
    flood_count: int = key(whole(2, 10_000_000), 20_000, "departures of a flood")


def cells(plan: Plan) -> list[Probing]:
    """Return every combination that the senders support."""
    every = combine(plan, plan.departures.tools)
    return [one for one in every if one.tool != "ping" or not FLOOD_NS < one.interval_ns < PING_LEAST_NS]


def length(plan: Plan, factors: Probing) -> tuple[int, int]:
    """Return the departures of a trial; there is no warm-up."""
    asked = plan.departures
    if factors.interval_ns == FLOOD_NS:
        return asked.flood_count, 0
    return min(asked.count, max(LEAST_COUNT, asked.at_most_ns // factors.interval_ns)), 0


def expand(plan: Plan) -> list[Trial[Probing]]:
    """Return every trial, in order: there is one path, and nothing to mirror."""
    return order_trials(plan, cells(plan), (DIRECT,), lambda factors: length(plan, factors), mirrored=False)


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows."""
    return describe_probes(plan, expand(plan), (DIRECT,), visits_per_round=1)


def check(plan: Plan, given: Lookup) -> None:
    """Refuse any probe that ping does not have."""
    if plan.probe.probe != ("icmp",):
        method = given("study.method", plan.study.method)
        raise refuse(method, "study.method", 'probe.probe = ["icmp"] with it: ping knows no other')
    check_probes(plan, given)


ASK = Ask(
    sections={"probe": ProbePlan, "pairs": PairsPlan, "departures": DeparturesPlan},
    expand=expand,
    estimate=estimate_probes,
    check=check,
    describe=describe,
    limit=Limit("pairs", "rounds", 8),
    unread=frozenset({"pairs.reference"}),
    words={"device": "bed.devices", "size": "probe.icmp_bytes"},
    emulates=False,
    sessions=True,
    probes=True,
    clock_trials=True,
    clock_trials_apart_s=APART_S,
    not_simulated="ping and a capture need a real kernel",
)
