"""Method "variance": the plan of beds with all factors redrawn and several starts, and beds with some factors held.

The design: the first row has every factor redrawn; each further row holds some of them. It is a full factorial of up to
three factors, and of more factors a fraction of eight rows (2^(k-p)), in which the further factors are assigned to the
products of the first three. Beds of all rows are in random order.
"""

from __future__ import annotations

import random
from itertools import combinations, cycle, islice
from math import prod
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Estimate
from sojourn.plan.estimate import SESSION_NS, SESSION_SIMULATED_NS
from sojourn.plan.probes import (
    FLOOD_NS,
    HELD,
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
from sojourn.plan.section import key, section
from sojourn.plan.settings import SETTINGS
from sojourn.plan.source import refuse
from sojourn.plan.types import DRAWN, SWITCHED
from sojourn.plan.values import list_of, one_of, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.ask import Lookup
    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan

FULL = 3
"""Up to this number of factors, every combination has its own row."""

MOST = 2**FULL - 1
"""The number of factors that eight rows can separate."""

FACTORS = (*(one for one in DRAWN if one != "order"), *(one for one in SWITCHED if one not in {"frequency", *SETTINGS}))
"""The default factors: the order of paths belongs to the rest, the clock frequency can be set on few machines, and the
switches in [settings] are used only if requested."""

LEAST_BEDS = 4
"""The minimum number of beds of each row; intervals are valid from this number on."""


@section
class VariancePlan:
    """The factors that are held, the number of beds with all redrawn, and the starts of programs on each bed."""

    factors: tuple[str, ...] = key(
        list_of(one_of(*DRAWN, *SWITCHED), may_be_empty=True),
        FACTORS,
        "random choices that are held in some beds and made anew in others",
    )
    beds: int = key(
        whole(LEAST_BEDS, 1000), 12, ("beds with all choices made anew; the other beds hold some of the factors")
    )
    starts: int = key(whole(2, 100), 3, "starts of the programs of both ends on each bed")


def design(factors: Sequence[str]) -> list[tuple[str, ...]]:
    """Return what each row holds; the first row holds nothing."""
    base = min(len(factors), FULL)
    products = [chosen for size in range(1, base + 1) for chosen in combinations(range(base), size)]
    rows = []
    for row in range(2**base):
        signs = [-1 if row >> bit & 1 else 1 for bit in range(base)]
        levels = [prod(signs[one] for one in product) for product in products]
        rows.append(tuple(factor for factor, level in zip(factors, levels, strict=False) if level < 0))
    return rows


def held_by_bed(plan: Plan) -> list[tuple[str, ...]]:
    """Return what each bed of the plan holds, in the order of beds."""
    free, *others = design(plan.variance.factors)
    beds = [free] * plan.variance.beds
    beds += islice(cycle(others or [free]), plan.bed.sessions - len(beds))
    return random.Random(f"{plan.pairs.seed}/beds").sample(beds, len(beds))


def bed_of(plan: Plan, turn: int) -> int:
    """Return the bed on which a round is measured."""
    each: int = plan.pairs.rounds // plan.bed.sessions
    return turn // each


def hold(plan: Plan, first: Trial[Any]) -> tuple[str, ...]:
    """Return what is held on the bed whose first trial is `first`."""
    return held_by_bed(plan)[bed_of(plan, first.round)]


def switches(plan: Plan, first: Trial[Any]) -> dict[str, bool]:
    """Return the switches of the bed whose first trial is `first`: off where held, otherwise on in half of the beds.

    The beds of a row have every combination of switches equally often, in an order drawn from the plan's seed.
    """
    every, bed = held_by_bed(plan), bed_of(plan, first.round)
    held = every[bed]
    several = every.count(held)
    order = random.Random(f"{plan.pairs.seed}/switches/{held}").sample(range(several), several)
    place = order[every[:bed].count(held)]
    asked = [one for one in SWITCHED if one in plan.variance.factors]
    free = [one for one in asked if one not in held]
    return {one: one in free and bool(place >> free.index(one) & 1) for one in asked}


def expand(plan: Plan) -> list[Trial[Probing]]:
    """Return every block of probes, in order; each bed visits the paths in one order."""
    held = held_by_bed(plan)

    def order_of(turn: int) -> str:
        bed = bed_of(plan, turn)
        return HELD if "order" in held[bed] else f"bed {bed}"

    return order_trials(
        plan, combine(plan), paths(plan), lambda factors: block_length(plan, factors), order_of=order_of
    )


def estimate(plan: Plan, trials: Sequence[Trial[Probing]]) -> Estimate:
    """Return the estimated time of the blocks and of the additional starts."""
    cost = estimate_probes(plan, trials)
    further = (plan.variance.starts - 1) * plan.bed.sessions
    each = SESSION_SIMULATED_NS if plan.bed.simulated else SESSION_NS
    return cost._replace(total_ns=cost.total_ns + further * each)


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows."""
    told = describe_probes(plan, expand(plan), paths(plan), visits_per_round=2)
    return told | {"total_ns": estimate(plan, expand(plan)).total_ns}


def check(plan: Plan, given: Lookup) -> None:
    """Require enough beds for every row, and rounds that divide into beds, starts and at least two repeats."""
    own, sessions = plan.variance, plan.bed.sessions
    rows = len(design(own.factors)) - 1
    least = own.beds + LEAST_BEDS * rows
    if sessions < least or (not rows and sessions != own.beds):
        expected = (
            f"{least}{' or more' if rows else ''}: variance.beds = {own.beds}, and {LEAST_BEDS} of each row that holds"
        )
        raise refuse(given("bed.sessions", sessions), "bed.sessions", expected)
    if len(own.factors) > MOST:
        raise refuse(given("variance.factors", list(own.factors)), "variance.factors", f"{MOST} at most")
    if "rps" in own.factors and plan.bed.device_cpu != "shared":
        raise refuse(given("bed.device_cpu", "shared"), "bed.device_cpu", '"shared": variance.factors has "rps"')
    each = sessions * own.starts
    if plan.pairs.rounds % each or plan.pairs.rounds < 2 * each:
        expected = f"a multiple of bed.sessions x variance.starts = {each}, from {2 * each} on"
        raise refuse(given("pairs.rounds", plan.pairs.rounds), "pairs.rounds", expected)
    if not plan.bed.devices:
        raise refuse(given("bed.devices", []), "bed.devices", "at least one device")
    if FLOOD_NS in plan.probe.intervals_ns:
        raise refuse(given("probe.interval", "flood"), "probe.interval", "times only")
    if len(combine(plan)) > 1:
        sizes = given(f"probe.{plan.probe.size_key}", list(plan.probe.sizes))
        raise refuse(sizes, f"probe.{plan.probe.size_key}", "one size, one probe, one schedule and one interval")
    check_probes(plan, given)


ASK = Ask(
    sections={"probe": ProbePlan, "pairs": PairsPlan, "variance": VariancePlan},
    expand=expand,
    estimate=estimate,
    check=check,
    describe=describe,
    unread=frozenset({"pairs.at_most", "pairs.reference", "bed.hold"}),
    words={"device": "bed.devices", "size": "probe.icmp_bytes"},
    probes=True,
    one_clock=False,
    sessions=True,
    hold=hold,
    switch=switches,
    starts=lambda plan: plan.variance.starts,
)
