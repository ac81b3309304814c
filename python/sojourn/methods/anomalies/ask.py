"""Method "anomalies": the plan of long series of probes, one after the other over each path.

A series is a block: `pairs.probes_per_block` probes without a pause; each path has `pairs.rounds` of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask
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

LEAST_PROBES = 2000
"""The least length of a series: a shorter one does not show a period of a hundred probes."""


def expand(plan: Plan) -> list[Trial[Probing]]:
    """Return every series, in order."""
    return order_trials(plan, combine(plan), paths(plan), lambda factors: block_length(plan, factors), mirrored=False)


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows."""
    return describe_probes(plan, expand(plan), paths(plan), visits_per_round=1)


def check(plan: Plan, given: Lookup) -> None:
    """Refuse series that are too short, or not of regular probes: no period could be detected."""
    if set(plan.probe.schedule) != {"regular"} or FLOOD_NS in plan.probe.intervals_ns:
        asked = given("probe.schedule", list(plan.probe.schedule))
        raise refuse(asked, "probe.schedule", 'only "regular", and no interval "flood"')
    least = min(block_length(plan, factors)[0] for factors in combine(plan))
    if least < LEAST_PROBES:
        value = given("pairs.probes_per_block", plan.pairs.probes_per_block)
        raise refuse(value, "pairs.probes_per_block", f"{LEAST_PROBES} or more, pairs.block_at_most included")
    check_probes(plan, given)


ASK = Ask(
    sections={"probe": ProbePlan, "pairs": PairsPlan},
    expand=expand,
    estimate=estimate_probes,
    check=check,
    describe=describe,
    unread=frozenset({"pairs.at_most", "pairs.reference", "bed.hold"}),
    words={"device": "bed.devices", "size": "probe.icmp_bytes", "probes": "pairs.probes_per_block"},
    probes=True,
    one_bed="follows one bed for long",
    one_clock=False,
)
