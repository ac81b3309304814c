"""Method "pairs": the plan of answered probes, over a device and over the direct path in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.probes import (
    FLOOD_NS,
    PairsPlan,
    ProbePlan,
    Probing,
    block_length,
    check_probes,
    combine,
    describe_probes,
    estimate_probes,
    order_trials,
    paths,
)
from sojourn.plan.source import refuse

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan


def expand(plan: Plan) -> list[Trial[Probing]]:
    """Return every block of probes, in order."""
    return order_trials(plan, combine(plan), paths(plan), lambda factors: block_length(plan, factors))


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows."""
    return describe_probes(plan, expand(plan), paths(plan), visits_per_round=2)


def check(plan: Plan, given: Lookup) -> None:
    """Refuse a plan with nothing to compare, or with a flood."""
    if not plan.bed.devices and not plan.pairs.a_a:
        method = given("study.method", plan.study.method)
        raise refuse(method, "study.method", "at least one device in bed.devices, or pairs.a_a = true")
    reference = plan.pairs.reference
    if reference is not None and (reference not in plan.bed.devices or len(plan.bed.devices) == 1):
        value = given("pairs.reference", reference)
        raise refuse(value, "pairs.reference", "one of bed.devices, and another device beside it")
    if FLOOD_NS in plan.probe.intervals_ns:
        interval = given("probe.interval", "flood")
        raise refuse(interval, "probe.interval", 'times only: "flood" belongs to study.method = "departures"')
    check_probes(plan, given)


ASK = Ask(
    sections={"probe": ProbePlan, "pairs": PairsPlan},
    expand=expand,
    estimate=estimate_probes,
    check=check,
    describe=describe,
    limit=Limit("pairs", "rounds", 8),
    hypotheses=("constant-plus-per-byte", "rate-independent", "cascade-adds", "slope-is-sum-of-rates"),
    words={"device": "bed.devices", "size": "probe.icmp_bytes"},
    probes=True,
    sessions=True,
    headline=True,
    twins="all",
    one_clock=False,
)
