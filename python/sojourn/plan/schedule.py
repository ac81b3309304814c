"""Expands a plan into blocks, in the order in which they are measured. The same plan and seed give the same blocks.

A round of a cell visits every arm in a random order and then in the mirrored order (A B C, C B A), so that a drift
linear in time cancels in each pair. Cells are shuffled within a round. Does not know how a block is measured.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.plan.sizes import KINDS, exceeds_mtu, frame_of, payload_of
from sojourn.plan.types import A_A, DIRECT, FLOOD_NS, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST_COUNT = 5
"""Slow intervals shorten a block, but to no fewer probes than this."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of factors."""

    cell: int
    probe: str
    size: int
    """As asked, under the plan's size key."""
    request_payload_bytes: int
    response_payload_bytes: int
    interval_ns: int
    """0 where the schedule has none: each probe waits for the answer before it."""
    schedule: str
    fragments: bool
    tool: str = "probe"
    """Method departures: whose sender it is."""

    @property
    def response_frame_bytes(self) -> int:
        """The answer's frame with its FCS."""
        return frame_of(self.probe, self.response_payload_bytes)


@dataclass(frozen=True, slots=True)
class Block:
    """One short run of probes over one arm: the smallest thing that is measured, recorded and resumed."""

    block: int
    device: str
    round: int
    visit: int
    cell: Cell
    count: int
    warmup: int
    seed: int

    @property
    def arm(self) -> str:
        """The link that it takes: the A/A control takes the direct one again."""
        return DIRECT if self.device == A_A else self.device


def arms(plan: Plan) -> tuple[str, ...]:
    """Every device of a round, the empty path first."""
    if plan.study.method == "departures":
        return (DIRECT,)
    return (DIRECT, *([A_A] if plan.pairs.a_a else []), *plan.bed.devices)


def cells(plan: Plan) -> list[Cell]:
    """Every combination that the plan asks, in its order."""
    found: list[Cell] = []
    for tool, probe, size, schedule, interval in combinations(plan):
        payload = payload_of(probe, plan.probe.size_key, size)
        fixed = KINDS[probe].kind == "request-response"
        found.append(
            Cell(
                cell=len(found),
                probe=probe,
                size=size,
                request_payload_bytes=plan.probe.request_payload_bytes if fixed else payload,
                response_payload_bytes=payload,
                interval_ns=interval,
                schedule=schedule,
                fragments=exceeds_mtu(probe, payload, plan.bed.mtu),
                tool=tool,
            )
        )
    return found


PING_LEAST_NS = 1_000_000
"""ping takes its interval in milliseconds; anything shorter is its flood."""


def combinations(plan: Plan) -> Iterator[tuple[str, str, int, str, int]]:
    """Tool, probe, size, schedule and interval of each cell; a closed loop has no interval to vary."""
    departures = plan.study.method == "departures"
    for tool in plan.departures.tools if departures else ("probe",):
        for probe in plan.probe.probe:
            for size in plan.probe.sizes:
                for schedule in plan.probe.schedule:
                    if schedule == "as-answered":
                        yield tool, probe, size, schedule, FLOOD_NS
                        continue
                    for interval in plan.probe.intervals_ns:
                        if tool == "ping" and FLOOD_NS < interval < PING_LEAST_NS:
                            continue
                        yield tool, probe, size, "as-answered" if interval == FLOOD_NS else schedule, interval


def expand(plan: Plan) -> list[Block]:
    """Every block, in order."""
    order = random.Random(plan.pairs.seed)
    blocks: list[Block] = []
    every = cells(plan)
    for round_number in range(plan.pairs.rounds):
        shuffled = order.sample(every, len(every))
        for cell in shuffled:
            for visit, device in visits(plan, order):
                count, warmup = counts(plan, cell)
                seed = order.getrandbits(62)
                blocks.append(Block(len(blocks), device, round_number, visit, cell, count, warmup, seed))
    return blocks


def visits(plan: Plan, order: random.Random) -> list[tuple[int, str]]:
    """One random order of the arms, and its mirror; departures have one arm and need no mirror."""
    every = arms(plan)
    there = order.sample(every, len(every))
    if plan.study.method == "departures":
        return [(0, device) for device in there]
    return [(0, device) for device in there] + [(1, device) for device in reversed(there)]


def counts(plan: Plan, cell: Cell) -> tuple[int, int]:
    """Probes of a block, and how many of them warm up."""
    if plan.study.method == "departures":
        if cell.interval_ns == FLOOD_NS:
            return plan.departures.flood_count, 0
        return min(plan.departures.count, max(LEAST_COUNT, plan.departures.at_most_ns // cell.interval_ns)), 0
    count, warmup, at_most = plan.pairs.probes_per_block, plan.pairs.warmup_probes, plan.pairs.block_at_most_ns
    if at_most is not None and cell.interval_ns:
        count = min(count, max(LEAST_COUNT, at_most // cell.interval_ns))
    # A shortened block keeps its share of warm-up, and at least one: the first probe after a change of arm is cold.
    return count, min(warmup, max(1, warmup * count // plan.pairs.probes_per_block))
