"""Expand a plan with streams into trials, in the order of measurement: one matrix for every static method.

A cell is one combination of factors. A round visits each cell once, in a random order; a visit to a cell uses every
path that can carry it in a random order and then in the mirrored one, as for blocks of probes (plan/probes.py). The
same plan and seed give the same trials, so that an interrupted run knows the remaining ones. Does not know how a trial
is run.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from sojourn import devices
from sojourn.plan.clock_trials import is_emulated
from sojourn.plan.emulators import expected_ns
from sojourn.plan.estimate import estimated
from sojourn.plan.rates import ramp_ends
from sojourn.plan.second_links import Spread
from sojourn.plan.sizes import stream_frame, stream_payload
from sojourn.plan.trial import Trial
from sojourn.plan.types import A_A, DIRECT, WIRE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.plan.ask import Estimate
    from sojourn.plan.rates import Rate
    from sojourn.plan.types import Plan

CLOSED_LOOP = "closed-loop"
TO_MANY = ("broadcast", "multicast")
"""Only these addresses have other subscribers; with any other there is one cell, without subscribers."""

CLOSED_LOOPS = ("ping-pong", "request-response")
LEAST_COUNT = 5
ROUND_TRIP_NS = 60_000
"""The assumed time of a closed-loop probe, for estimates only."""

FLOOR_PPS = 1000.0
QUALIFY_NS = 300_000_000

QUALIFY_BLOCKS = 1_000_000
"""Blocks of the tester's own qualification are numbered from here."""

SEARCH_BLOCKS = 2_000_000
"""Blocks of searches and of repeated trials are numbered from here."""


@dataclass(frozen=True, slots=True)
class Factors:
    """One combination: what is sent to where, at what rate, and under what load."""

    engine: str
    frame_bytes: int
    """With FCS; of the responses, if the kind has a fixed request."""
    payload_bytes: int
    schedule: str
    """regular, poisson, burst:N, ramp:FROM-TO, flood; closed-loop for the closed loops."""
    rate_pps: float | None
    """Mean rate of all senders together; None for a flood, a ramp, a closed loop and a share."""
    interval_ns: int | None
    """The same as time between frames."""
    rate_share: float | None
    """The share of the path's measured throughput, if the rate is given as one."""
    to: str
    senders: int
    receivers: int
    """The number of other subscribers."""
    load: float
    """The share of the device's throughput that other pairs use; 0 for none."""
    load_via: str | None
    """through or beside; None without a load."""
    kind: str
    pipe: str = ""
    """The configuration of the path's emulators; "" does not change it."""


def stream_cells(plan: Plan) -> list[Factors]:
    """Return every combination in the plan's order; the index is the cell's number."""
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
    """Return a combination without a rate and without a load."""
    tagged = plan.stream.vlan is not None
    payload = stream_payload(engine, plan.stream.size_key, size, tagged=tagged)
    return Factors(
        engine=engine,
        frame_bytes=stream_frame(engine, payload, tagged=tagged),
        payload_bytes=payload,
        schedule=CLOSED_LOOP,
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
    """Return it with every schedule and rate; a closed loop, a flood and a ramp have no rate to vary."""
    if at.kind in CLOSED_LOOPS:
        yield at
        return
    for schedule in plan.stream.schedule:
        if schedule == "flood" or schedule.startswith("ramp:"):
            yield replace(at, schedule=schedule)
            continue
        for rate in rates_of(plan, at):
            pps = rate.pps(at.frame_bytes)
            interval = None if pps is None else round(1e9 / pps)
            yield replace(at, schedule=schedule, rate_pps=pps, interval_ns=interval, rate_share=rate.share)


def rates_of(plan: Plan, at: Factors) -> list[Rate]:
    """Return the rates at which frames of this size are sent."""
    size = at.frame_bytes if plan.stream.size_key == "frame_bytes" else at.payload_bytes
    return [rate for rate in plan.stream.rates if rate.is_for(size)]


def loads(plan: Plan) -> Iterator[tuple[float, str | None]]:
    """Return no load once, and each other load through each of its ways."""
    for load in plan.stream.load:
        for via in plan.stream.load_via if load else (None,):
            yield load, via


def paths_of(plan: Plan, factors: Factors) -> tuple[str, ...]:
    """Return the paths that can carry it: only a switch has further ports, and unknown addresses."""
    several = factors.senders > 1 and not plan.stream.marks
    needs_switch = several or factors.receivers > 0 or factors.load_via == "through"
    if needs_switch or factors.to == "unknown":
        return tuple(device for device in plan.bed.devices if is_switch(plan, device))
    return (DIRECT, *([A_A] if plan.trials.a_a and not factors.load else []), *plan.bed.devices)


def is_switch(plan: Plan, device: str) -> bool:
    """Return whether it has more than two ports; every simulated line except the wire may represent a switch."""
    return plan.bed.is_switch(device) or (plan.bed.simulated and device != WIRE)


def expand_trials(plan: Plan) -> list[Trial[Factors]]:
    """Return every trial, in order."""
    order = random.Random(plan.trials.seed)
    trials: list[Trial[Factors]] = []
    every, own_link, spread = (
        list(enumerate(stream_cells(plan))),
        DIRECT in plan.twins,
        Spread.of(plan, plan.trials.seed),
    )
    for round_number in range(plan.trials.rounds):
        for cell, factors in order.sample(every, len(every)):
            there = order.sample(paths := paths_of(plan, factors), len(paths))
            duration, count = length(plan, factors)
            seconds = spread.over(paths, (0, 1))
            for visit, device in [(0, path) for path in there] + [(1, path) for path in reversed(there)]:
                trials.append(
                    Trial(len(trials), device, round_number, visit, cell, factors, order.getrandbits(62), count,
                          duration_ns=duration, batch=round_number, own_link=own_link,
                          second=visit in seconds[device])
                )  # fmt: skip
    return trials


def length(plan: Plan, factors: Factors) -> tuple[int, int | None]:
    """Return the duration of a trial, and the frames of each sender if they are known before."""
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
    """Return the mean rate of all senders if it is known before: a ramp's is halfway between its ends."""
    ends = ramp_ends(factors.schedule, factors.frame_bytes)
    return sum(ends) / 2 if ends else factors.rate_pps


def qualify_trials(plan: Plan) -> list[Trial[Factors]]:
    """Return the trials that qualify the tester on the direct link: minimum delay, pacing and maximum rate.

    There is one set for each size and engine. The minimum delay is that of an idle path. Pacing is judged at the
    highest rate that the plan gives in frames. The flood finds the tester's maximum rate; the conductor searches its
    zero-loss rate below that.
    """
    if not plan.trials.qualify:
        return []
    order = random.Random(plan.trials.seed)
    found: list[Trial[Factors]] = []
    for engine, size in product(plan.stream.engine, plan.stream.sizes):
        empty = base(plan, "one-way", engine, size, "unicast", 1, 0)
        for factors in dict.fromkeys(qualifying(plan, empty)):
            duration, count = length(plan, factors)
            duration = min(duration, QUALIFY_NS)
            if factors.rate_pps is not None:
                count = max(LEAST_COUNT, round(factors.rate_pps * duration / 1e9))
            found.append(
                Trial(QUALIFY_BLOCKS + len(found), DIRECT, 0, 0, -1, factors, order.getrandbits(62), count,
                      duration_ns=duration, purpose="qualify")
            )  # fmt: skip
    return found


def qualifying(plan: Plan, empty: Factors) -> Iterator[Factors]:
    """Return the factors for minimum delay, pacing and maximum rate."""
    asked = [pps for rate in rates_of(plan, empty) if (pps := rate.pps(empty.frame_bytes)) is not None]
    for pps in dict.fromkeys([FLOOR_PPS, *([max(asked)] if asked else [])]):
        yield replace(empty, schedule="regular", rate_pps=pps, interval_ns=round(1e9 / pps))
    yield replace(empty, schedule="flood")


TRIAL_NS = 60_000_000
"""The time of a trial without its frames: three requests, counters before and after, flushed records."""

COMPARING_NS = 1_000_000_000
"""The time that a stream between two hosts takes longer because it compares their clocks: 200 exchanges before it and
200 after it, 2 ms apart, and requests over SSH."""

FLOODED_PPS = 400_000
"""The assumed rate of a flood, for the count of frames only."""


def estimate_trials(plan: Plan, trials: Sequence[Trial[Factors]]) -> Estimate:
    """Estimate the duration of these trials of the plan; `probes` counts frames of all senders."""
    simulated = plan.bed.simulated
    takes = {trial.block: TRIAL_NS + (0 if simulated else trial_ns(plan, trial)) for trial in trials}
    measured = [trial for trial in trials if trial.purpose != "qualify"]
    measuring = sum(takes[trial.block] for trial in measured)
    cost = estimated(plan, measured, sum(map(frames_of, trials)), measuring, sum(takes.values()) - measuring)
    return cost._replace(blocks=len(trials))


def trial_ns(plan: Plan, trial: Trial[Factors]) -> int:
    """Return the time of one trial on a real bed: its frames, and the wait for the last of them, pipes included."""
    pipe = expected_ns(trial.factors.pipe) if devices.emulator_label(trial.path) is not None else 0
    compares = trial.purpose == "measure" and trial.factors.engine != "tcp"
    return int(trial.duration_ns + plan.trials.grace_ns + pipe + (comparing_ns(plan, trial.path) if compares else 0))


def comparing_ns(plan: Plan, path: str) -> int:
    """Return how much longer a stream over a path takes because it compares the clocks of two hosts.

    Whether real hosts are two machines is not known before they are asked: on one machine, nothing is compared.
    """
    compares = plan.bed.hosts is not None and plan.ask.joins_clocks and not is_emulated(plan, path)
    return COMPARING_NS if compares else 0


def frames_of(trial: Trial[Factors]) -> int:
    """Return the frames of all senders; a guess if the number depends on the machine."""
    if trial.count is None:
        return trial.duration_ns * FLOODED_PPS // 1_000_000_000
    return trial.count * trial.factors.senders


def describe_trials(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows: cells with their factors, paths, counts and times."""
    trials, qualifying = expand_trials(plan), qualify_trials(plan)
    cost = estimate_trials(plan, [*qualifying, *trials])
    one_of_each = {trial.cell: trial for trial in trials}
    return {
        "rounds": plan.trials.rounds,
        "asked_by": plan.stream.rate_key,
        "trials": len(trials),
        "qualifying_trials": len(qualifying),
        "frames": cost.probes,
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": [
            {"cell": cell, **asdict(factors), "paths": list(paths_of(plan, factors))}
            | {"duration_ns": one_of_each[cell].duration_ns, "count": one_of_each[cell].count}
            for cell, factors in enumerate(stream_cells(plan))
        ],
    }
