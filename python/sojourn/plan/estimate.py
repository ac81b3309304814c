"""How long a plan will take: counts times intervals, what a block costs beside them, and what surrounds the blocks.

Honest on a quiet machine; losses add their timeouts, and a busy machine its own time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.plan.costs import costs_ns, expand_costs
from sojourn.plan.emulators import expected_ns
from sojourn.plan.sizes import KINDS
from sojourn.plan.tcp import expand_tcp, tcp_ns
from sojourn.plan.types import FLOOD_NS, Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.schedule import Block
    from sojourn.plan.trials import Search, Trial

BLOCK_NS = 600_000
"""One block beside its probes: request, socket, two stamps, records flushed, answer. Measured on two cores."""

EMULATOR_NS = 60_000
"""What an emulator that sleeps between packets adds to each way: it is woken, twice with a delay."""

PING_NS = 25_000_000
"""One start of ping, and the wait for its last answer."""

ANSWER_NS = {"icmp": 15_000, "packet": 15_000, "udp": 25_000}
"""A closed loop's probe, where the responder polls on a core of its own."""

AROUND_NS, AROUND_SIMULATED_NS = 4_000_000_000, 1_000_000_000
"""Building the bed, its facts before and after, warm-up."""

AFTERWARDS_NS = 6_000_000_000
"""Analysis and report of a short run."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected time of a run, in its parts."""

    blocks: int
    probes: int
    measuring_ns: int
    total_ns: int


def estimate(plan: Plan, blocks: Sequence[Block]) -> Estimate:
    """What these blocks of the plan will take."""
    simulated = plan.bed.backend == "sim"  # simulated time costs nothing
    measuring = sum(BLOCK_NS if simulated else block_ns(block, answer_ns(plan, block)) for block in blocks)
    if plan.pairs.at_most_ns is not None:
        measuring = min(measuring, plan.pairs.at_most_ns)
    return Estimate(
        blocks=len(blocks),
        probes=sum(block.count for block in blocks),
        measuring_ns=measuring,
        total_ns=measuring + (AROUND_SIMULATED_NS if plan.bed.backend == "sim" else AROUND_NS) + AFTERWARDS_NS,
    )


def answer_ns(plan: Plan, block: Block) -> int:
    """A closed loop's probe: what it costs by itself, and what rated links and emulators on its way take."""
    own = ANSWER_NS[KINDS[block.cell.probe].via]
    both = block.cell.request_payload_bytes + block.cell.response_payload_bytes
    emulators = 2 * EMULATOR_NS if devices.emulator_label(block.arm) is not None else 0
    if block.arm not in plan.bed.links:
        return own + emulators
    link, cables = plan.bed.links[block.arm], devices.cables(block.arm)
    rates = link.rates_bps * cables if len(link.rates_bps) == 1 else link.rates_bps
    delays = link.delays_ns * cables if len(link.delays_ns) == 1 else link.delays_ns
    hops = sum(both * 8_000_000_000 // bps + 2 * EMULATOR_NS for bps in rates if bps)
    return own + emulators + hops + 2 * sum(delays)


def block_ns(block: Block, answer: int) -> int:
    """One block on a real bed."""
    own = PING_NS if block.cell.tool == "ping" else BLOCK_NS
    if block.cell.interval_ns == FLOOD_NS:
        return block.count * answer + own
    return (block.count - 1) * block.cell.interval_ns + answer + own


TRIAL_NS = 60_000_000
"""One trial beside its frames: three requests, counters before and after, records flushed."""

FLOODED_PPS = 400_000
"""What a flood is taken to send, in the count of frames alone."""


def estimate_trials(plan: Plan, trials: Sequence[Trial]) -> Estimate:
    """What these trials of the plan will take; `probes` counts frames of all senders."""
    simulated = plan.bed.backend == "sim"
    measuring = sum(TRIAL_NS + (0 if simulated else trial_ns(plan, trial)) for trial in trials)
    if plan.trials.at_most_ns is not None:
        measuring = min(measuring, plan.trials.at_most_ns)
    frames = sum(frames_of(trial) for trial in trials)
    around = (AROUND_SIMULATED_NS if plan.bed.backend == "sim" else AROUND_NS) + AFTERWARDS_NS
    return Estimate(len(trials), frames, measuring, measuring + around)


def trial_ns(plan: Plan, trial: Trial) -> int:
    """One trial on a real bed: its frames, and the wait for the last of them, pipes included."""
    pipe = expected_ns(trial.factors.pipe) if devices.emulator_label(trial.arm) is not None else 0
    return trial.duration_ns + plan.trials.settle_ns + pipe


def frames_of(trial: Trial) -> int:
    """Frames of all senders; guessed where only the machine will tell."""
    if trial.count is None:
        return trial.duration_ns * FLOODED_PPS // 1_000_000_000
    return trial.count * trial.factors.senders


def estimate_searches(plan: Plan, searches: Sequence[Search]) -> Estimate:
    """What these searches will take at most likely; how many trials a search needs, only the device decides."""
    costs = [search_ns(plan, search) for search in searches]
    measuring = sum(costs)
    if plan.bed.backend == "sim":
        measuring = len(searches) * TRIAL_NS
    if plan.search.at_most_ns is not None:
        measuring = min(measuring, plan.search.at_most_ns)
    around = (AROUND_SIMULATED_NS if plan.bed.backend == "sim" else AROUND_NS) + AFTERWARDS_NS
    return Estimate(len(searches), 0, measuring, measuring + around)


def estimate_costs(plan: Plan) -> Estimate:
    """What the slices of a log's cost will take."""
    measuring = costs_ns(plan)
    return Estimate(len(expand_costs(plan)), 0, measuring, measuring + AROUND_NS + AFTERWARDS_NS)


def estimate_tcp(plan: Plan) -> Estimate:
    """What trials over TCP will take."""
    measuring = tcp_ns(plan)
    return Estimate(len(expand_tcp(plan)), 0, measuring, measuring + AROUND_NS + AFTERWARDS_NS)


def search_ns(plan: Plan, search: Search) -> int:
    """One search, by its own procedure."""
    asked, settle = plan.search, plan.trials.settle_ns + TRIAL_NS
    halvings = ceil(log2(1 / asked.width))
    if search.test in ("throughput", "broadcast-forwarding"):
        if search.algorithm == "binary":
            return halvings * (asked.duration_ns + settle)
        first = halvings * (asked.initial_duration_ns + settle)
        return first + 2 * len(search.goals) * (asked.duration_sum_ns + settle)
    if search.test in ("latency", "broadcast-latency", "pdv", "ipdv"):
        return asked.latency_repetitions * (asked.latency_duration_ns + settle)
    if search.test == "frame-loss":
        return ceil(1 / asked.loss_step) * (asked.duration_ns + settle)
    if search.test == "back-to-back":
        return (asked.burst_repetitions + halvings) * (asked.burst_ns + settle)
    return ceil(log2(asked.most_addresses)) * (asked.initial_duration_ns + settle)
