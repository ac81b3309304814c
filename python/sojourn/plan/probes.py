"""Probes and their replies in blocks: sections of a plan, their cells and the order of their trials.

A trial is a block of probes over one path. A round of a cell visits every path in a random order and then in the
mirrored order (A B C, C B A), so that a drift linear in time cancels in each pair. Cells are shuffled within a round.
Does not know how a block is measured.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sojourn import devices
from sojourn.errors import RequestError
from sojourn.plan.estimate import EMULATOR_NS, estimated
from sojourn.plan.section import HOUR_NS, key, only_one, section
from sojourn.plan.sizes import ETHERNET, KINDS, LEAST_FRAME, exceeds_mtu, frame_of, payload_of
from sojourn.plan.source import Given, refuse
from sojourn.plan.trial import Trial
from sojourn.plan.types import A_A, DEVICE, DIRECT
from sojourn.plan.values import duration, flag, list_of, one_of, whole, word_or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.source import Table
    from sojourn.plan.types import Plan

FLOOD_NS = 0
"""The interval of `ping -f`: the next request is sent as soon as a reply is received."""

SizeKey = Literal["icmp_bytes", "payload_bytes", "frame_bytes"]
SIZE_KEYS: tuple[SizeKey, ...] = ("icmp_bytes", "payload_bytes", "frame_bytes")
BYTES = list_of(whole(0, 100_000))
MOST_ICMP = 65_507
"""An IPv4 packet has at most 65,535 bytes with its own header of 20 and ICMP's of 8."""

LEAST_COUNT = 5
"""The least probes of a block that is shortened because of a long interval."""

BLOCK_NS = 600_000
"""The time of a block without its probes: request, socket, two timestamps, flushed records, answer. On two cores."""

ANSWER_NS = {"icmp": 15_000, "packet": 15_000, "udp": 25_000}
"""The time of a closed-loop probe, if the responder polls on a core of its own."""


@section
class ProbePlan:
    """The probes: their kinds, sizes and schedules."""

    ALTERNATIVES: ClassVar = (SIZE_KEYS,)
    probe: tuple[str, ...] = key(list_of(one_of(*KINDS)), ("icmp",), "kind of probe and reply")
    icmp_bytes: tuple[int, ...] | None = key(BYTES, None, "ICMP header and data, as ping counts it")
    payload_bytes: tuple[int, ...] | None = key(BYTES, None, "user data")
    frame_bytes: tuple[int, ...] | None = key(BYTES, None, "Ethernet frame with its FCS")
    request_payload_bytes: int = key(whole(40, 65_000), 64, "the fixed request of request-response")
    """Every other probe sends and answers the same size."""
    intervals_ns: tuple[int, ...] = key(
        list_of(word_or("flood", FLOOD_NS, duration(1_000, HOUR_NS))),
        (1_000_000,),
        "between intended departures",
        name="interval",
    )
    schedule: tuple[str, ...] = key(
        list_of(one_of("regular", "poisson", "closed-loop")), ("regular",), "open loop, or a closed one"
    )
    timeout_ns: int = key(duration(1_000_000, HOUR_NS), 200_000_000, "a later answer counts as late")

    @property
    def size_key(self) -> SizeKey:
        """The size key that has a value."""
        return next(name for name in SIZE_KEYS if getattr(self, name) is not None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The values of this key."""
        found: tuple[int, ...] = getattr(self, self.size_key)
        return found

    @staticmethod
    def resolve(values: dict[str, Any], table: Table, name: str) -> dict[str, Any]:
        """Resolve the size key: ping's 64 bytes by default."""
        if only_one(values, SIZE_KEYS, "probe", table) is None:
            if not all(probe.startswith("icmp") for probe in values["probe"]):
                wanted = "expected probe.payload_bytes or frame_bytes, such as [64, 1500]"
                raise RequestError(f"{name}: no size is given: {wanted}")
            values["icmp_bytes"] = (64,)
        return values


@section
class PairsPlan:
    """Rounds, blocks and their order."""

    rounds: int = key(whole(1, 100_000), 12, "pairs per cell and device")
    probes_per_block: int = key(whole(2, 10_000_000), 44, "warm-up included")
    warmup_probes: int = key(whole(0, 1_000_000), 4, "first probes of a block, recorded, but in no figure")
    block_at_most_ns: int | None = key(duration(1_000_000, HOUR_NS), None, "slow intervals get fewer probes per block")
    at_most_ns: int | None = key(
        duration(1_000_000, 1000 * HOUR_NS), None, "time limit: measuring ends after the last whole round within it"
    )
    seed: int = key(whole(0, 2**62), 1, "of every random order")
    a_a: bool = key(flag(), True, "the direct link measured against itself")  # noqa: FBT003
    reference: str | None = key(DEVICE, None, "device that the others are compared with, as with the direct link")


@dataclass(frozen=True, slots=True)
class Probing:
    """One combination of factors."""

    probe: str
    size: int
    """The size as configured, for the plan's size key."""
    request_payload_bytes: int
    response_payload_bytes: int
    interval_ns: int
    """0 for a schedule without an interval: each probe waits for the reply to the one before it."""
    schedule: str
    fragments: bool
    tool: str = "probe"
    """The sending tool."""

    @property
    def response_frame_bytes(self) -> int:
        """The frame size of the response, with FCS."""
        return frame_of(self.probe, self.response_payload_bytes)


def paths(plan: Plan) -> tuple[str, ...]:
    """Return every path of a round, the direct one first."""
    twins = tuple(devices.twin_of(one) for one in plan.twins if one != DIRECT)
    return (DIRECT, *([A_A] if plan.pairs.a_a else []), *plan.bed.devices, *twins)


def combine(plan: Plan, tools: Sequence[str] = ("probe",)) -> list[Probing]:
    """Return every combination in the plan's order; a closed loop has no interval to vary."""
    found: list[Probing] = []
    for tool, probe, size, schedule, interval in combinations(plan, tools):
        payload = payload_of(probe, plan.probe.size_key, size)
        fixed = KINDS[probe].kind == "request-response"
        request = plan.probe.request_payload_bytes if fixed else payload
        fragments = exceeds_mtu(probe, payload, plan.bed.mtu)
        found.append(Probing(probe, size, request, payload, interval, schedule, fragments, tool))
    return found


def combinations(plan: Plan, tools: Sequence[str]) -> Iterator[tuple[str, str, int, str, int]]:
    """Tool, probe, size, schedule and interval of each cell."""
    for tool in tools:
        for probe in plan.probe.probe:
            for size in plan.probe.sizes:
                for schedule in plan.probe.schedule:
                    if schedule == "closed-loop":
                        yield tool, probe, size, schedule, FLOOD_NS
                        continue
                    for interval in plan.probe.intervals_ns:
                        yield tool, probe, size, "closed-loop" if interval == FLOOD_NS else schedule, interval


HELD = "held"
"""The order of paths in all rounds if it is held."""

Length = tuple[int, int]
"""The probes of a block, and how many of them are for warming up."""


def order_trials(
    plan: Plan,
    cells: Sequence[Probing],
    over: Sequence[str],
    length: Callable[[Probing], Length],
    *,
    mirrored: bool = True,
    order_of: Callable[[int], str | None] | None = None,
) -> list[Trial[Probing]]:
    """Return every trial in order: rounds of shuffled cells, each over every path and, if mirrored, back again.

    Rounds with the same value of `order_of` visit paths in the same order; None: each round has an order of its own.
    """
    of_round = order_of or (lambda _: HELD if "order" in plan.bed.hold else None)
    order = random.Random(plan.pairs.seed)
    trials: list[Trial[Probing]] = []
    numbered = list(enumerate(cells))
    lengths = {factors: length(factors) for factors in cells}
    own_link = DIRECT in plan.twins
    for turn in range(plan.pairs.rounds):
        for cell, factors in order.sample(numbered, len(numbered)):
            there, same = order.sample(over, len(over)), of_round(turn)
            if same is not None:
                there = random.Random(f"{plan.pairs.seed}/{same}").sample(over, len(over))
            visits = [(0, device) for device in there]
            visits += [(1, device) for device in reversed(there)] if mirrored else []
            for visit, device in visits:
                count, warmup = lengths[factors]
                trials.append(
                    Trial(len(trials), device, turn, visit, cell, factors, order.getrandbits(62), count, warmup,
                          batch=turn, own_link=own_link)
                )  # fmt: skip
    return trials


def block_length(plan: Plan, factors: Probing) -> Length:
    """Return the probes of a block, and how many of them are for warming up."""
    count, warmup, at_most = plan.pairs.probes_per_block, plan.pairs.warmup_probes, plan.pairs.block_at_most_ns
    if at_most is not None and factors.interval_ns:
        count = min(count, max(LEAST_COUNT, at_most // factors.interval_ns))
    # A shortened block keeps its share of warm-up, at least one: the first probe after a change of path meets cold
    # caches.
    return count, min(warmup, max(1, warmup * count // plan.pairs.probes_per_block))


def estimate_probes(plan: Plan, trials: Sequence[Trial[Probing]]) -> Estimate:
    """Estimate the duration of these blocks."""
    simulated = plan.bed.simulated  # simulated time takes no real time
    measuring = sum(BLOCK_NS if simulated else block_ns(trial, answer_ns(plan, trial)) for trial in trials)
    return estimated(plan, trials, sum(trial.count or 0 for trial in trials), measuring)


def answer_ns(plan: Plan, trial: Trial[Probing]) -> int:
    """Return the time of a closed-loop probe: its own, and that of rated links and emulators on its path."""
    factors = trial.factors
    own = ANSWER_NS[KINDS[factors.probe].via]
    both = factors.request_payload_bytes + factors.response_payload_bytes
    emulators = 2 * EMULATOR_NS if devices.emulator_label(trial.path) is not None else 0
    path = devices.fellow_of(trial.path)
    if path not in plan.bed.links:
        return own + emulators
    link, cables = plan.bed.links[path], devices.cables(path)
    rates = link.rates_bps * cables if len(link.rates_bps) == 1 else link.rates_bps
    delays = link.delays_ns * cables if len(link.delays_ns) == 1 else link.delays_ns
    hops = sum(both * 8_000_000_000 // bps + 2 * EMULATOR_NS for bps in rates if bps)
    return own + emulators + hops + 2 * sum(delays)


PING_NS = 25_000_000
"""One start of ping, and the wait for its last reply."""


def block_ns(trial: Trial[Probing], answer: int) -> int:
    """Return the time of one block on a real bed."""
    own, count = PING_NS if trial.factors.tool == "ping" else BLOCK_NS, trial.count or 0
    if trial.factors.interval_ns == FLOOD_NS:
        return count * answer + own
    return (count - 1) * trial.factors.interval_ns + answer + own


def describe_probes(
    plan: Plan, trials: Sequence[Trial[Probing]], over: Sequence[str], visits_per_round: int
) -> dict[str, Any]:
    """Return what `--dry-run` shows of blocks."""
    cost = estimate_probes(plan, trials)
    one_of_each = {trial.cell: trial for trial in trials}
    return {
        "paths": list(over),
        "rounds": 1 + max(trial.round for trial in trials),
        "visits_per_round": visits_per_round,
        "blocks": cost.blocks,
        "probes": cost.probes,
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": [described(plan, one_of_each[cell]) for cell in sorted(one_of_each)],
    }


def described(plan: Plan, trial: Trial[Probing]) -> dict[str, Any]:
    """Return the description of one cell."""
    factors = trial.factors
    told = {name: value for name, value in asdict(factors).items() if name not in ("size", "interval_ns")}
    return {"cell": trial.cell, **told} | {
        plan.probe.size_key: factors.size,
        "request_frame_bytes": frame_of(factors.probe, factors.request_payload_bytes),
        "response_frame_bytes": factors.response_frame_bytes,
        "interval_ns": factors.interval_ns or None,
        "probes_per_block": trial.count,
        "size": f"{factors.size} {plan.probe.size_key}",
    }


def check_probes(plan: Plan, given: Lookup) -> None:
    """Check that each probe supports the sizes, that the link carries them, and that blocks exceed their warm-up."""
    name = f"probe.{plan.probe.size_key}"
    for probe in plan.probe.probe:
        for size in plan.probe.sizes:
            check_size(plan, probe, size, Given(size, given(name, size).where), name)
    check_request(plan, given("probe.request_payload_bytes", plan.probe.request_payload_bytes))
    if plan.pairs.warmup_probes >= plan.pairs.probes_per_block:
        value = given("pairs.warmup_probes", plan.pairs.warmup_probes)
        raise refuse(value, "pairs.warmup_probes", f"fewer than pairs.probes_per_block = {plan.pairs.probes_per_block}")


def check_size(plan: Plan, probe: str, size: int, given: Given, key: str) -> None:
    """Check that this probe supports the size and this link carries it."""
    kind = KINDS[probe]
    if plan.probe.size_key == "icmp_bytes" and kind.via != "icmp":
        raise refuse(given, key, f"payload_bytes or frame_bytes, since {probe} has no ICMP header")
    payload = payload_of(probe, plan.probe.size_key, size)
    short_frame = plan.probe.size_key == "frame_bytes" and size < LEAST_FRAME
    if payload < kind.least_payload or short_frame:
        raise refuse(given, key, f"at least {least(probe, plan.probe.size_key)} for {probe}")
    most = plan.bed.mtu if kind.via == "packet" else MOST_ICMP
    if payload > most:
        raise refuse(given, key, f"at most {size - payload + most} for {probe} with bed.mtu = {plan.bed.mtu}")


def least(probe: str, size_key: str) -> int:
    """Return the least value of this size key."""
    kind = KINDS[probe]
    if size_key == "icmp_bytes":
        return 8
    if size_key == "frame_bytes":
        return max(LEAST_FRAME, kind.least_payload + kind.headers + ETHERNET)
    return kind.least_payload


def check_request(plan: Plan, given: Given) -> None:
    """Check that the fixed request fits one frame; otherwise fragments would be measured."""
    for probe in plan.probe.probe:
        size = plan.probe.request_payload_bytes
        kind = KINDS[probe]
        if kind.kind != "request-response":
            continue
        if size < kind.least_payload or exceeds_mtu(probe, size, plan.bed.mtu):
            most = plan.bed.mtu - kind.headers
            raise refuse(given, "probe.request_payload_bytes", f"{kind.least_payload} to {most} for {probe}")
