"""Searches: their tests on each path and size, their procedures, and their stopping rules (RFC 2544, 8219 and 2889).

A trial of the plan is a whole search: its steps, trials too, are decided during the search. Does not know how a search
is run.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.estimate import estimated
from sojourn.plan.rates import Rate, rate
from sojourn.plan.second_links import Spread
from sojourn.plan.section import DAY_NS, HOUR_NS, key, section
from sojourn.plan.source import Given, refuse
from sojourn.plan.streamable import check_frames, is_bridge, words
from sojourn.plan.streams import StreamPlan, TrialsPlan, ends
from sojourn.plan.trial import Trial
from sojourn.plan.trials import TRIAL_NS, base, comparing_ns
from sojourn.plan.types import DIRECT
from sojourn.plan.values import AUTO, auto_or, duration, flag, list_of, number, one_of, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.types import Plan

SEARCHED = ("throughput", "broadcast-forwarding")
"""Tests that search for a load by loss ratio; the others have procedures of their own."""

NEEDED_FIRST = {
    "latency": "throughput",
    "pdv": "throughput",
    "ipdv": "throughput",
    "learning-rate": "address-capacity",
    "broadcast-latency": "broadcast-forwarding",
}
"""The test whose result another test needs as its load."""

READ = ("address-capacity", "learning-rate")
"""Tests that read the table of addresses of the device, and empty it before each trial."""

TESTS = (
    *("throughput", "latency", "pdv", "ipdv", "frame-loss", "back-to-back"),
    *("address-capacity", "learning-rate", "broadcast-forwarding", "broadcast-latency", "forward-pressure"),
)
"""All tests; each suite has some of them."""


@section
class SearchPlan:
    """The tests, their procedure, and their stopping rules."""

    tests: tuple[str, ...] = key(list_of(one_of(*TESTS)), (), "tests to make; by default all of the suite")
    algorithm: tuple[str, ...] = key(list_of(one_of("mlrsearch", "binary")), ("mlrsearch",), "binary: halving")
    goals: tuple[float, ...] = key(list_of(number(0, 0.5)), (0.0, 0.005), "loss ratios: 0 is the zero-loss rate")
    """0 searches for the zero-loss rate (NDR), 0.005 for the partial drop rate (PDR)."""
    width: float = key(number(0.0001, 0.5), 0.005, "relative width at which a search ends")
    initial_duration_ns: int = key(duration(1_000_000, HOUR_NS), 1_000_000_000, "of a search's first trials")
    duration_ns: int = key(duration(1_000_000, HOUR_NS), 60_000_000_000, "of its last trials")
    duration_sum_ns: int = key(duration(1_000_000, DAY_NS), 120_000_000_000, "of all trials that decide a load")
    exceed_ratio: float = key(number(0, 0.99), 0.5, "share of these trials that may miss a goal above 0")
    max_rate: Rate | None = key(auto_or(rate(shares=False)), AUTO, "highest load; auto: the tester's zero-loss rate")
    repetitions: int = key(whole(1, 1000), 6, "of every search")
    verify_loss: bool = key(flag(), False, "binary, bursts: a loss counts when a second trial repeats it")  # noqa: FBT003
    latency_duration_ns: int = key(duration(1_000_000, HOUR_NS), 120_000_000_000, "a stream at the throughput found")
    latency_repetitions: int = key(whole(1, 1000), 4, "such streams, in each repetition")
    loss_step: float = key(
        number(0.01, 0.5), 0.1, ("step of the offered load in the test of frame loss, downwards from the highest load")
    )
    burst_ns: int = key(duration(1_000_000, HOUR_NS), 2_000_000_000, "longest burst back to back")
    burst_repetitions: int = key(whole(1, 1000), 9, "whole searches for the longest burst, in each repetition")
    most_addresses: int = key(whole(1, 65_536), 16_384, "addresses that a bridge is to learn")
    at_most_ns: int | None = key(duration(1_000_000, 1000 * HOUR_NS), None, "no search begins after this time")


@dataclass(frozen=True, slots=True)
class Sought:
    """One test at one size."""

    test: str
    engine: str
    frame_bytes: int
    payload_bytes: int
    algorithm: str
    goals: tuple[float, ...]


BURST_HALVINGS = 16
"""The most bursts of one search that are likely: doublings from the least, then halvings to a hundredth."""

UNREAD = frozenset(
    f"stream.{name}"
    for name in (
        *("kind", "schedule", "interval", "rate", "to", "senders", "receivers", "request_payload_bytes"),
        *("load", "load_via", "load_frame_bytes", "load_schedule", "pipe", "marks", "walk"),
    )
) | frozenset(f"trials.{name}" for name in ("rounds", "duration", "count_at_most", "probes", "at_most", "a_a"))
"""Keys that a search decides itself, so that a plan may not have them."""


def suite(tests: tuple[str, ...], *, bridges: bool = False, not_simulated: str | None = None) -> Ask:
    """Return the ask of a suite of tests, in the order of their dependences; `bridges`: for bridges only."""

    def resolved(plan: Plan) -> Plan:
        return plan if plan.search.tests else plan.with_section("search", replace(plan.search, tests=tests))

    def check(plan: Plan, given: Lookup) -> None:
        check_frames(plan, given)
        check_search(plan, given, tests, bridges=bridges)

    return Ask(
        sections={"stream": StreamPlan, "trials": TrialsPlan, "search": SearchPlan},
        expand=lambda plan: expand_searches(plan, tests),
        estimate=estimate_searches,
        check=check,
        describe=lambda plan: describe_searches(plan, tests),
        resolve=resolved,
        limit=Limit("search", None, 0),
        unread=UNREAD,
        words={"device": "bed.devices", "size": "stream.frame_bytes", "rounds": "search.repetitions",
               "at_most": "search.at_most"},
        ends=ends,
        not_simulated=not_simulated,
        sessions=True,
        session_batches=1,
        twins="spread",
        joins_clocks=True,
    )  # fmt: skip


def expand_searches(plan: Plan, suite: tuple[str, ...]) -> list[Trial[Sought]]:
    """Return every search in order: a test that another one depends on at the same size comes first.

    A repetition is a batch: it is measured on one bed. If the bed has second links, every other size of a repetition
    uses the second one, and in the next repetition the other sizes do: a search is too long to be made over both.
    """
    order = random.Random(plan.trials.seed)
    tests = [test for test in suite if test in plan.search.tests]
    found: list[Trial[Sought]] = []
    cells: dict[Sought, int] = {}
    places = list(product(plan.bed.devices or (DIRECT,), plan.stream.engine, plan.stream.sizes))
    turns = range(plan.search.repetitions + len(places))
    seconds = Spread.of(plan, plan.trials.seed).over(plan.bed.devices or (DIRECT,), turns)
    place_of = {place: turn for turn, place in enumerate(product(plan.stream.engine, plan.stream.sizes))}
    for repetition in range(plan.search.repetitions):
        for device, engine, size in order.sample(places, len(places)):
            at = base(plan, "one-way", engine, size, "unicast", 1, 0)
            second = repetition + place_of[engine, size] in seconds[device]
            for test in tests:
                algorithms = plan.search.algorithm if test in SEARCHED else plan.search.algorithm[:1]
                for algorithm in algorithms * (plan.search.burst_repetitions if test == "back-to-back" else 1):
                    goals = plan.search.goals if test in SEARCHED else ()
                    sought = Sought(test, engine, at.frame_bytes, at.payload_bytes, algorithm, goals)
                    cell = cells.setdefault(sought, len(cells))
                    found.append(
                        Trial(len(found), device, repetition, 0, cell, sought, order.getrandbits(62), batch=repetition,
                              second=second)
                    )  # fmt: skip
    return found


def estimate_searches(plan: Plan, trials: Sequence[Trial[Sought]]) -> Estimate:
    """Estimate the duration of these searches; the number of trials depends on the device."""
    simulated = plan.bed.simulated
    return estimated(plan, trials, 0, sum(TRIAL_NS if simulated else search_ns(plan, one) for one in trials))


def search_ns(plan: Plan, trial: Trial[Sought]) -> int:
    """Estimate one search, by its own procedure."""
    asked: SearchPlan = plan.search
    search, grace = trial.factors, int(plan.trials.grace_ns) + TRIAL_NS
    halvings = ceil(log2(1 / asked.width))
    if search.test in ("throughput", "broadcast-forwarding"):
        if search.algorithm == "binary":
            return halvings * len(search.goals) * (asked.duration_sum_ns + grace)
        first = halvings * (asked.initial_duration_ns + grace)
        return first + 2 * len(search.goals) * (asked.duration_sum_ns + grace)
    if search.test in ("latency", "broadcast-latency", "pdv", "ipdv"):
        return asked.latency_repetitions * (asked.latency_duration_ns + grace + comparing_ns(plan, trial.path))
    if search.test == "frame-loss":
        return ceil(1 / asked.loss_step) * (asked.duration_ns + grace)
    if search.test == "back-to-back":
        return BURST_HALVINGS * (asked.burst_ns + grace)
    return ceil(log2(asked.most_addresses)) * (asked.initial_duration_ns + grace)


def describe_searches(plan: Plan, tests: tuple[str, ...]) -> dict[str, Any]:
    """Return what `--dry-run` shows: the searches on each path at each size, and their duration."""
    searches = expand_searches(plan, tests)
    cost = estimate_searches(plan, searches)
    return {
        "repetitions": plan.search.repetitions,
        "searches": [
            {"number": one.block, "device": one.device, "repetition": one.round, "seed": one.seed}
            | asdict(one.factors)
            | {"expected_ns": search_ns(plan, one)}
            for one in searches
        ],
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
    }


def check_search(plan: Plan, given: Lookup, tests: tuple[str, ...], *, bridges: bool) -> None:
    """Check that the suite has the tests, and that each has the test it depends on."""
    search, method = plan.search, plan.study.method
    for test in search.tests:
        where = Given(test, given("search.tests", test).where)
        if test not in tests:
            raise refuse(where, "search.tests", f"{words(tests)} for study.method = {method}")
        if test in NEEDED_FIRST and NEEDED_FIRST[test] not in search.tests:
            raise refuse(where, "search.tests", f'"{NEEDED_FIRST[test]}" beside it, at whose result it is done')
    if bridges and not all(is_bridge(plan, device) for device in plan.bed.devices or (DIRECT,)):
        value = given("bed.devices", list(plan.bed.devices))
        several = "or a dut:<label> that has several ports at an end in the file of hosts"
        wanted = f"bridges alone for {method}, which is about tables of addresses, {several}"
        raise refuse(value, "bed.devices", wanted)
    check_tables(plan, given, tests)
    if search.initial_duration_ns > search.duration_ns:
        key = "search.initial_duration"
        raise refuse(given(key, "longer"), key, "at most search.duration")
    if search.duration_ns > search.duration_sum_ns:
        raise refuse(given("search.duration_sum", "shorter"), "search.duration_sum", "at least search.duration")


def check_tables(plan: Plan, given: Lookup, tests: tuple[str, ...]) -> None:
    """Refuse tests of the table of addresses over a device that Sojourn does not build: it cannot be read or emptied.

    RFC 2889 infers what it holds from flooded frames, and waits until it has forgotten them before each trial.
    """
    outside = [device for device in plan.bed.devices if device in plan.bed.outside_switches]
    for test in plan.search.tests if outside else ():
        if test in READ:
            others = ",".join(one for one in tests if one not in READ)
            wanted = f"no test of the table of addresses over {outside[0]}, which Sojourn can neither read nor empty"
            where = Given(test, given("search.tests", test).where)
            raise refuse(where, "search.tests", f"{wanted}: --set search.tests={others}")
