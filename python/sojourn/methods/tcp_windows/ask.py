"""Method "tcp-windows": the plan of windows, numbers of connections, paths, and the baseline of each path.

Each round begins with the baseline of every path: the round-trip time of the idle path, and the bottleneck's rate,
measured with a train of full packets above that rate (RFC 6349). The windows of the round's transfers are multiples of
the bandwidth-delay product.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.estimate import estimated
from sojourn.plan.probes import FLOOD_NS, ProbePlan, Probing, check_size, combine
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.sizes import ETHERNET, ICMP_HEADER, KINDS
from sojourn.plan.source import Given, refuse
from sojourn.plan.tcp import BUFFER, MSS, TRIAL, TRIAL_NS, over_devices
from sojourn.plan.trial import Trial
from sojourn.plan.values import duration, list_of, matching, number, text, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.types import Plan

RTT, RATE, TRANSFER = "rtt", "rate", "transfer"
"""What a trial measures: one of the two baseline values of a path, or transfers with a window."""

BASELINE = "baseline"
"""The purpose of trials of the first two kinds."""

LEAST_PROBES = 20
"""The minimum number of probes over the idle path, and during a transfer."""

LEAST_TRAIN = 100
"""The minimum number of packets of a train."""


@section
class WindowsPlan:
    """The transfers, and the baseline before them."""

    window: tuple[float, ...] = key(
        list_of(number(0.01, 100)),
        (0.25, 0.5, 0.75, 1.0, 2.0, 4.0),
        "TCP windows of all connections together, over the bandwidth-delay product",
    )
    connections: tuple[int, ...] = key(list_of(whole(1, 1000)), (1, 4), "TCP connections of a transfer, from A to B")
    congestion: str = key(
        matching(r"[a-z][a-z0-9_]*", 'a name such as "reno"'), "cubic", "congestion control of the senders"
    )
    pipe: tuple[str, ...] = key(
        list_of(text(), may_be_empty=True), (), "what emulators are set to; none: what [emulate] says"
    )
    idle_ns: int = key(TRIAL, 2_000_000_000, "probes over the idle path, for the baseline round-trip time")
    train_ns: int = key(TRIAL, 500_000_000, "full packets above the bottleneck's rate, for that rate")
    train_interval_ns: int = key(
        duration(1_000, HOUR_NS), 100_000, "between two of them; the bottleneck must take longer for each"
    )
    start_up_ns: int = key(TRIAL, 2_000_000_000, "a transfer's beginning, which is in no throughput and no round trip")
    duration_ns: int = key(TRIAL, 8_000_000_000, "what follows the start-up")
    read_every_ns: int = key(TRIAL, 100_000_000, "how often each sender reads TCP_INFO")
    rounds: int = key(whole(1, 100_000), 12, "trials of each cell over each device")
    mss_bytes: int = key(MSS, 1460, "largest segment, options included, as TCP_MAXSEG takes it")
    send_buffer_bytes: int = key(BUFFER, 4_194_304, "of each connection")
    receive_buffer_bytes: int = key(BUFFER, 8_388_608, "of each connection: more than any window")
    pause_ns: int = key(duration(1_000, HOUR_NS), 200_000_000, "between two trials")
    at_most_ns: int | None = key(
        duration(1_000_000, 1000 * HOUR_NS), None, "measuring ends with a whole round in this time"
    )
    seed: int = key(whole(0, 2**62), 1, "of every random order")


@dataclass(frozen=True, slots=True)
class Windowed(Probing):
    """A trial: its probes and the simultaneous transfers; a baseline has only probes."""

    what: str = TRANSFER
    connections: int = 0
    window: float = 0.0
    pipe: str = ""


def cells(plan: Plan) -> list[tuple[int, str, Windowed]]:
    """Return number, device and factors of every cell over every device, baselines first; only emulators have pipes."""
    own = plan.windows
    [small] = combine(plan)
    payload = plan.bed.mtu - KINDS[small.probe].headers
    beyond = {"icmp_bytes": ICMP_HEADER, "payload_bytes": 0, "frame_bytes": KINDS[small.probe].headers + ETHERNET}
    full = asdict(small) | {
        "size": payload + beyond[plan.probe.size_key],
        "request_payload_bytes": payload,
        "response_payload_bytes": payload,
        "interval_ns": own.train_interval_ns,
    }
    pipes = ("", *own.pipe)
    several = [
        Windowed(**(full if what == RATE else asdict(small)), what=what, pipe=pipe)
        for pipe, what in product(pipes, (RTT, RATE))
    ]
    several += [
        Windowed(**asdict(small), what=TRANSFER, connections=connections, window=window, pipe=pipe)
        for pipe, connections, window in product(pipes, own.connections, own.window)
    ]
    return over_devices(plan, several, lambda factors: factors.pipe)


def expand(plan: Plan) -> list[Trial[Windowed]]:
    """Return every trial, in order: in each round the baselines, then the transfers, shuffled."""
    own, order = plan.windows, random.Random(plan.windows.seed)
    each = cells(plan)
    baselines = [one for one in each if one[2].what != TRANSFER]
    transfers = [one for one in each if one[2].what == TRANSFER]
    trials: list[Trial[Windowed]] = []
    for turn in range(own.rounds):
        for cell, device, factors in (*baselines, *order.sample(transfers, len(transfers))):
            lasts = lasts_ns(plan, factors)
            trials.append(
                Trial(len(trials), device, turn, 0, cell, factors, order.getrandbits(62), lasts // factors.interval_ns,
                      duration_ns=lasts, batch=turn, purpose="measure" if factors.what == TRANSFER else BASELINE)
            )  # fmt: skip
    return trials


def lasts_ns(plan: Plan, factors: Windowed) -> int:
    """Return the duration of a trial's probes."""
    own = plan.windows
    return int({RTT: own.idle_ns, RATE: own.train_ns, TRANSFER: own.start_up_ns + own.duration_ns}[factors.what])


def estimate(plan: Plan, trials: Sequence[Trial[Windowed]]) -> Estimate:
    """Return the estimated time of the measurement."""
    probes = sum(trial.count or 0 for trial in trials)
    # # After a train there is a wait for lost probes.
    beside = {RTT: 0, RATE: plan.probe.timeout_ns, TRANSFER: TRIAL_NS}
    lasts = (trial.duration_ns + plan.windows.pause_ns + beside[trial.factors.what] for trial in trials)
    return estimated(plan, trials, probes, sum(lasts))


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows: cells with their factors, trials and times."""
    trials = expand(plan)
    cost = estimate(plan, trials)
    return {
        "connections": len(trials),
        "rounds": plan.windows.rounds,
        "probes": cost.probes,
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": [
            {"cell": cell, "kind": kind_of(of), "congestion": plan.windows.congestion, "pipe": of.pipe, "path": device,
             "probe": of.probe}
            for cell, device, of in cells(plan)
        ],
    }  # fmt: skip


def kind_of(factors: Windowed) -> str:
    """Return a description of a cell."""
    if factors.what != TRANSFER:
        return f"baseline: {factors.what}"
    return f"{factors.connections} x {factors.window:g} BDP"


def check(plan: Plan, given: Lookup) -> None:
    """Require a device to measure, one kind of probe at known times, and enough of them in each trial."""
    if not plan.bed.devices:
        raise refuse(given("bed.devices", []), "bed.devices", "at least one device")
    for name, several in (("probe", plan.probe.probe), ("interval", plan.probe.intervals_ns),
                          ("schedule", plan.probe.schedule), (plan.probe.size_key, plan.probe.sizes)):  # fmt: skip
        if len(several) != 1:
            raise refuse(given(f"probe.{name}", list(several)), f"probe.{name}", "one value for tcp-windows")
    [interval], [probe], [size] = plan.probe.intervals_ns, plan.probe.probe, plan.probe.sizes
    if plan.probe.schedule[0] == "closed-loop" or interval == FLOOD_NS:
        asked = given("probe.schedule", list(plan.probe.schedule))
        raise refuse(asked, "probe.schedule", '"regular" or "poisson", and no interval "flood"')
    check_times(plan, given, interval)
    if KINDS[probe].kind == "request-response":
        raise refuse(given("probe.probe", probe), "probe.probe", "a probe whose answer is as long as itself")
    where = given(f"probe.{plan.probe.size_key}", size).where
    check_size(plan, probe, size, Given(size, where), f"probe.{plan.probe.size_key}")


def check_times(plan: Plan, given: Lookup, interval: int) -> None:
    """Refuse parts of trials that are too short for their probes."""
    own = plan.windows
    for name, span, least in (
        ("idle", own.idle_ns, LEAST_PROBES * interval),
        ("duration", own.duration_ns, LEAST_PROBES * interval),
        ("train", own.train_ns, LEAST_TRAIN * own.train_interval_ns),
    ):
        if span < least:
            wanted = f"{least / 1e6:g} ms or more, for its probes"
            raise refuse(given(f"windows.{name}", span), f"windows.{name}", wanted)


ASK = Ask(
    sections={"probe": ProbePlan, "windows": WindowsPlan},
    expand=expand,
    estimate=estimate,
    check=check,
    describe=describe,
    limit=Limit("windows", "rounds", 2),
    hypotheses=("window-or-rate",),
    words={"rounds": "windows.rounds", "device": "bed.devices", "stream.pipe": "windows.pipe"},
    pipes=lambda plan: plan.windows.pipe,
    pipe_key="windows.pipe",
    sessions=True,
    one_clock=False,
    not_simulated="it needs a kernel's TCP",
)
