"""Method "short-flows": the plan of transfers, by size and path.

A trial is a series of connections of one size, each opened when the previous one has ended.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from sojourn.plan.ask import Ask, Limit
from sojourn.plan.emulators import expected_ns
from sojourn.plan.estimate import estimated
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.source import refuse
from sojourn.plan.tcp import BUFFER, CONGESTION, MSS, OFF, Connections, describe_connections, over_devices
from sojourn.plan.trial import Trial
from sojourn.plan.values import duration, list_of, text, whole
from sojourn.units import find_rates_bps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.types import Plan

TRIPS = 8
"""One-way delays per transfer, with its handshake and end; for the estimate of the time."""

FLOW_NS = 40_000_000
"""Further time per transfer: the requests to both ends."""

ASSUMED_BPS = 20_000_000
"""The rate of a path that is not known, for the estimate of the time only."""

BYTE_BITS = 8.4
"""With the share of the headers of full frames."""


@section
class ShortPlan:
    """The transfers."""

    size_bytes: tuple[int, ...] = key(
        list_of(whole(1, 1 << 30)), (10_000, 100_000, 1_000_000), "user data of a transfer"
    )
    congestion: tuple[str, ...] = key(CONGESTION, ("cubic",), "congestion controls of the sender")
    pipe: tuple[str, ...] = key(
        list_of(text(), may_be_empty=True), (), "configurations of the emulators; empty: that of [emulate]"
    )
    transfers: int = key(whole(1, 100_000), 25, "in a trial, one after the other")
    rounds: int = key(whole(1, 100_000), 12, "trials of each cell over each device")
    mss_bytes: int = key(MSS, 1460, "maximum segment size, options included, as TCP_MAXSEG takes it")
    send_buffer_bytes: int = key(BUFFER, 4_194_304, "of each connection")
    receive_buffer_bytes: int = key(BUFFER, 8_388_608, "of each connection")
    pause_ns: int = key(duration(1_000, HOUR_NS), 100_000_000, "between two trials")
    at_most_ns: int | None = key(
        duration(1_000_000, 1000 * HOUR_NS), None, "time limit: measuring ends after the last whole round within it"
    )
    seed: int = key(whole(0, 2**62), 1, "of every random order")


@dataclass(frozen=True, slots=True)
class Transfers(Connections):
    """Transfers of one size over one path."""

    size_bytes: int = 0


def cells(plan: Plan) -> list[tuple[int, str, Transfers]]:
    """Return the number, device and factors of every cell over every device; only emulators have pipes."""
    own = plan.short
    several = [
        Transfers(f"{size} bytes", congestion, pipe, OFF, size)
        for pipe, congestion, size in product(("", *own.pipe), own.congestion, own.size_bytes)
    ]
    return over_devices(plan, several, lambda factors: factors.pipe)


def expand(plan: Plan) -> list[Trial[Any]]:
    """Return every trial, in order: rounds of shuffled cells."""
    own, order = plan.short, random.Random(plan.short.seed)
    each = cells(plan)
    trials: list[Trial[Any]] = []
    for turn in range(own.rounds):
        for cell, device, factors in order.sample(each, len(each)):
            lasts = own.transfers * lasts_ns(plan, factors)
            trials.append(Trial(len(trials), device, turn, 0, cell, factors, duration_ns=lasts, batch=turn))
    return trials


def lasts_ns(plan: Plan, factors: Transfers) -> int:
    """Return the approximate duration of a transfer."""
    words = factors.pipe or max((one.forward or "" for one in plan.emulators.values()), key=expected_ns)
    bps = min(filter(None, find_rates_bps(words)), default=ASSUMED_BPS)
    return FLOW_NS + TRIPS * expected_ns(words) + int(BYTE_BITS * 1e9 * factors.size_bytes / float(bps))


def estimate(plan: Plan, trials: Sequence[Trial[Any]]) -> Estimate:
    """Return the estimated time of the measurement."""
    return estimated(plan, trials, 0, sum(trial.duration_ns + plan.short.pause_ns for trial in trials))


def describe(plan: Plan) -> dict[str, Any]:
    """Return what `--dry-run` shows."""
    trials = expand(plan)
    return describe_connections(trials, estimate(plan, trials))


def check(plan: Plan, given: Lookup) -> None:
    """Refuse a bed without a path."""
    if not plan.bed.devices:
        raise refuse(given("bed.devices", []), "bed.devices", "at least one device")


ASK = Ask(
    sections={"short": ShortPlan},
    expand=expand,
    estimate=estimate,
    check=check,
    describe=describe,
    limit=Limit("short", "rounds", 2),
    words={"rounds": "short.rounds", "device": "bed.devices"},
    pipes=lambda plan: plan.short.pipe,
    pipe_key="short.pipe",
    sessions=True,
    headline=True,
    clock_trials=True,
    not_simulated="it needs a kernel's TCP",
)
