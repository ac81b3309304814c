"""Expands a plan with streams into trials, in the order in which they are measured: one matrix for every static method.

A cell is one combination of factors. A round visits each cell once, in a random order; a visit to a cell takes every
arm that can carry it in a random order and then in the mirrored one, as blocks of probes do (plan/schedule.py). The
same plan and seed give the same trials, so an interrupted run knows what it still owes. Searches, whose next trial
depends on the last, are expanded to what is sought only (`expand_searches`). Does not know how a trial is run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.plan.keys import TESTS
from sojourn.plan.rates import ramp_ends
from sojourn.plan.sizes import stream_frame, stream_payload
from sojourn.plan.types import A_A, DIRECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.plan.types import Plan

AS_ANSWERED = "as-answered"
TO_MANY = ("broadcast", "multicast")
"""Only these have other subscribers; beside any other address there is one cell, without them."""

CLOSED_LOOPS = ("ping-pong", "request-response")
SEARCHED = ("throughput", "broadcast-forwarding")
"""Tests of a suite whose load is searched for to a loss ratio; the others have procedures of their own."""

LEAST_COUNT = 5
ROUND_TRIP_NS = 60_000
"""What a probe of a closed loop is taken to cost; for the estimate of the time alone."""

FLOOR_PPS = 1000.0
QUALIFY_NS = 300_000_000

QUALIFY_BLOCKS = 1_000_000
"""Blocks of the tester's own qualification are numbered from here."""

SEARCH_BLOCKS = 2_000_000
"""Blocks of searches and of repeated trials are numbered from here."""


@dataclass(frozen=True, slots=True)
class Factors:
    """One combination: what is sent to whom, how fast, and what goes on beside it."""

    engine: str
    frame_bytes: int
    """With the FCS; of the answers, where the kind has a fixed request."""
    payload_bytes: int
    schedule: str
    """regular, poisson, burst:N, ramp:FROM-TO, flood; as-answered for the closed loops."""
    rate_pps: float | None
    """Mean rate of all senders together; None for a flood, a ramp, a closed loop and a share."""
    interval_ns: int | None
    """The same as time between frames."""
    rate_share: float | None
    """The part of the arm's measured throughput, where the rate was asked so."""
    to: str
    senders: int
    receivers: int
    """Other subscribers."""
    load: float
    """Share of the device's throughput that other pairs take up; 0 for none."""
    load_via: str | None
    """through or beside; None without a load."""
    kind: str
    pipe: str = ""
    """What the emulators of the arm are set to, in words; "" leaves them as they are."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One stream, or several at once, over one arm: the smallest thing that is measured, recorded and resumed."""

    block: int
    purpose: str
    """measure or qualify here; the conductor adds search, warm-up and load."""
    device: str
    round: int
    visit: int
    cell: int
    factors: Factors
    duration_ns: int
    count: int | None
    """Frames of each sender (probes, for a closed loop); None where the duration alone ends it."""
    seed: int

    @property
    def arm(self) -> str:
        """The link that it takes: the A/A control takes the direct one again."""
        return DIRECT if self.device == A_A else self.device


@dataclass(frozen=True, slots=True)
class Search:
    """One thing that is sought on one arm at one size; its trials are found out as it goes."""

    number: int
    test: str
    device: str
    repetition: int
    engine: str
    frame_bytes: int
    payload_bytes: int
    algorithm: str
    goals: tuple[float, ...]
    seed: int


def stream_cells(plan: Plan) -> list[Factors]:
    """Every combination that the plan asks, in its order; the index is the cell's number."""
    stream = plan.stream
    products = product(stream.kind, stream.engine, stream.sizes, stream.to, stream.senders, stream.receivers)
    found = [
        replace(at, load=load, load_via=via, pipe=pipe)
        for kind, engine, size, to, senders, receivers in products
        if to in TO_MANY or not receivers
        for at in paced(plan, base(plan, kind, engine, size, to, senders, receivers))
        for load, via in loads(plan)
        for pipe in stream.pipe
    ]
    return list(dict.fromkeys(found))


def base(plan: Plan, kind: str, engine: str, size: int, to: str, senders: int, receivers: int) -> Factors:  # noqa: PLR0913, PLR0917 - one for each factor
    """A combination that is not paced yet and has nothing beside it."""
    tagged = plan.stream.vlan is not None
    payload = stream_payload(engine, plan.stream.size_key, size, tagged=tagged)
    return Factors(
        engine=engine,
        frame_bytes=stream_frame(engine, payload, tagged=tagged),
        payload_bytes=payload,
        schedule=AS_ANSWERED,
        rate_pps=None,
        interval_ns=None,
        rate_share=None,
        to=to,
        senders=senders,
        receivers=receivers,
        load=0.0,
        load_via=None,
        kind=kind,
    )


def paced(plan: Plan, at: Factors) -> Iterator[Factors]:
    """The same at every schedule and rate; a closed loop, a flood and a ramp have no rate to vary."""
    if at.kind in CLOSED_LOOPS:
        yield at
        return
    for schedule in plan.stream.schedule:
        if schedule == "flood" or schedule.startswith("ramp:"):
            yield replace(at, schedule=schedule)
            continue
        for rate in plan.stream.rates:
            pps = rate.pps(at.frame_bytes)
            interval = None if pps is None else round(1e9 / pps)
            yield replace(at, schedule=schedule, rate_pps=pps, interval_ns=interval, rate_share=rate.share)


def loads(plan: Plan) -> Iterator[tuple[float, str | None]]:
    """No load once, and each other one on every way that it can take."""
    for load in plan.stream.load:
        for via in plan.stream.load_via if load else (None,):
            yield load, via


def arms_of(plan: Plan, factors: Factors) -> tuple[str, ...]:
    """The arms that can carry it: only a switch has further ports, and addresses that it has not learnt."""
    several = factors.senders > 1 and not plan.stream.marks
    needs_switch = several or factors.receivers > 0 or factors.load_via == "through"
    if needs_switch or factors.to == "unknown":
        return tuple(device for device in plan.bed.devices if is_switch(plan, device))
    return (DIRECT, *([A_A] if plan.trials.a_a and not factors.load else []), *plan.bed.devices)


def is_switch(plan: Plan, device: str) -> bool:
    """Whether it has more ports than two; what a simulated line stands for is the plan's business."""
    return devices.is_switch(device) or plan.bed.backend == "sim"


def expand_trials(plan: Plan) -> list[Trial]:
    """Every trial, in order."""
    order = random.Random(plan.trials.seed)
    trials: list[Trial] = []
    every = list(enumerate(stream_cells(plan)))
    for round_number in range(plan.trials.rounds):
        for cell, factors in order.sample(every, len(every)):
            there = order.sample(arms := arms_of(plan, factors), len(arms))
            duration, count = length(plan, factors)
            for visit, device in [(0, arm) for arm in there] + [(1, arm) for arm in reversed(there)]:
                seed = order.getrandbits(62)
                at = (len(trials), "measure", device, round_number, visit, cell, factors)
                trials.append(Trial(*at, duration, count, seed))
    return trials


def length(plan: Plan, factors: Factors) -> tuple[int, int | None]:
    """How long a trial takes, and how many frames each sender has for it where that is known before."""
    trials = plan.trials
    if factors.kind in CLOSED_LOOPS:
        return trials.probes * ROUND_TRIP_NS, trials.probes
    pps = mean_pps(factors)
    if pps is None:
        return trials.duration_ns, None
    count = max(LEAST_COUNT, round(pps / factors.senders * trials.duration_ns / 1e9))
    count = count if trials.count_at_most is None else min(count, trials.count_at_most)
    return round(count * 1e9 * factors.senders / pps), count


def mean_pps(factors: Factors) -> float | None:
    """Mean rate of all senders, where it is known before: a ramp's is halfway between its ends."""
    ends = ramp_ends(factors.schedule, factors.frame_bytes)
    return sum(ends) / 2 if ends else factors.rate_pps


def qualify_trials(plan: Plan) -> list[Trial]:
    """What the tester is asked on the empty path first: floor, pacing and flood for each size and engine.

    The floor is what an idle path costs, the pacing is judged at the highest rate that the plan asks in frames, and the
    flood says where the tester itself ends; its clean rate is searched below that by whoever conducts it.
    """
    if not plan.trials.qualify:
        return []
    order = random.Random(plan.trials.seed)
    found: list[Trial] = []
    for engine, size in product(plan.stream.engine, plan.stream.sizes):
        empty = base(plan, "one-way", engine, size, "unicast", 1, 0)
        for factors in dict.fromkeys(qualifying(plan, empty)):
            duration, count = length(plan, factors)
            duration = min(duration, QUALIFY_NS)
            if factors.rate_pps is not None:
                count = max(LEAST_COUNT, round(factors.rate_pps * duration / 1e9))
            at = (QUALIFY_BLOCKS + len(found), "qualify", DIRECT, 0, 0, -1, factors)
            found.append(Trial(*at, duration, count, order.getrandbits(62)))
    return found


def qualifying(plan: Plan, empty: Factors) -> Iterator[Factors]:
    """Floor, pacing, flood."""
    asked = [pps for rate in plan.stream.rates if (pps := rate.pps(empty.frame_bytes)) is not None]
    for pps in dict.fromkeys([FLOOR_PPS, *([max(asked)] if asked else [])]):
        yield replace(empty, schedule="regular", rate_pps=pps, interval_ns=round(1e9 / pps))
    yield replace(empty, schedule="flood")


def expand_searches(plan: Plan) -> list[Search]:
    """Everything that is sought, in order: what a test needs of another at the same size comes before it."""
    order = random.Random(plan.trials.seed)
    tests = [test for test in TESTS[plan.study.method] if test in plan.search.tests]
    arms = plan.bed.devices or (DIRECT,)
    found: list[Search] = []
    places = list(product(arms, plan.stream.engine, plan.stream.sizes))
    for repetition in range(plan.search.repetitions):
        for device, engine, size in order.sample(places, len(places)):
            at = base(plan, "one-way", engine, size, "unicast", 1, 0)
            for test in tests:
                for algorithm in plan.search.algorithm if test in SEARCHED else plan.search.algorithm[:1]:
                    goals = plan.search.goals if test in SEARCHED else ()
                    where = (len(found), test, device, repetition, engine, at.frame_bytes, at.payload_bytes)
                    found.append(Search(*where, algorithm, goals, order.getrandbits(62)))
    return found
