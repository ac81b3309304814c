"""How long a plan will take: counts times intervals, what a block costs beside them, and what surrounds the blocks.

Honest on a quiet machine; losses add their timeouts, and a busy machine its own time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.plan.sizes import KINDS
from sojourn.plan.types import FLOOD_NS, Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.schedule import Block

BLOCK_NS = 600_000
"""One block beside its probes: request, socket, two stamps, records flushed, answer. Measured on two cores."""

PING_NS = 25_000_000
"""One start of ping, and the wait for its last answer."""

ANSWER_NS = {"icmp": 15_000, "packet": 15_000, "udp": 25_000}
"""A closed loop's probe, where the responder polls on a core of its own."""

AROUND_NS = {"netns": 4_000_000_000, "sim": 1_000_000_000}
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
    measuring = sum(BLOCK_NS if simulated else block_ns(block) for block in blocks)
    if plan.pairs.at_most_ns is not None:
        measuring = min(measuring, plan.pairs.at_most_ns)
    return Estimate(
        blocks=len(blocks),
        probes=sum(block.count for block in blocks),
        measuring_ns=measuring,
        total_ns=measuring + AROUND_NS[plan.bed.backend] + AFTERWARDS_NS,
    )


def block_ns(block: Block) -> int:
    """One block on a real bed."""
    answer = ANSWER_NS[KINDS[block.cell.probe].via]
    own = PING_NS if block.cell.tool == "ping" else BLOCK_NS
    if block.cell.interval_ns == FLOOD_NS:
        return block.count * answer + own
    return (block.count - 1) * block.cell.interval_ns + answer + own
