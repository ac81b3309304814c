"""Methods `pairs` and `departures`: every block in its order, asked of one long-lived prober.

A block that is whole is never measured again. Does not build the bed, and does not know how a run ends.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.conduct.archive import asked_in, rewrite
from sojourn.conduct.cores import off_core
from sojourn.conduct.departures import Witness, ping_trial
from sojourn.conduct.facts import tell_of_neighbours
from sojourn.conduct.part import require_as_asked, without_event
from sojourn.conduct.site import UDP_PORT, Site
from sojourn.errors import MachineError
from sojourn.instruments import BlocksInstrument, Responder, respond_argv
from sojourn.instruments.blocks import blocks_argv
from sojourn.instruments.conversation import place_options
from sojourn.plan import effective_toml
from sojourn.plan.sizes import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.conduct.archive import Log
    from sojourn.conduct.part import Part, Sitting
    from sojourn.plan import Block, Plan


def measure_all(sitting: Sitting) -> None:
    """Responder, warm-up, and every block that the part owes."""
    plan, part, site = sitting.plan, sitting.part, sitting.site
    options = place_options(sitting.cores.prober, plan.host.wait, fifo=sitting.fifo)
    with ExitStack() as stack:
        start_responder(sitting, stack)
        if not site.simulated:
            warm_up(sitting, options)
        argv = blocks_argv(sitting.instrument, sitting.records("a"), part.number, options)
        prober = BlocksInstrument(site.start("a"), argv)
        stack.callback(prober.kill)
        require_as_asked(plan, prober.ready)
        sitting.log("ready", part=part.number, cores=sitting.cores._asdict(), **without_event(prober.ready))
        before = sitting.site.bed.backend.usage()
        with off_core(sitting.cores.prober), open_witness(sitting) as witness:
            try:
                measure_blocks(sitting, prober, witness)
            finally:
                if not site.simulated:
                    tell_of_neighbours(before, sitting.site, sitting.log)


def start_responder(sitting: Sitting, stack: ExitStack) -> None:
    """Start the answering end where a probe needs one of ours."""
    blocks, site, cores = sitting.part.owed, sitting.site, sitting.cores
    vias = {KINDS[block.cell.probe].via for block in blocks}
    if site.simulated or not vias & {"packet", "udp"}:
        return
    arms = sorted({block.arm for block in blocks})
    devices = [site.bed.topology.arms[arm].b_dev for arm in arms] if "packet" in vias else []
    port = UDP_PORT if "udp" in vias else None
    alone = cores.responder != cores.prober
    responder = Responder(
        site.start("b"), respond_argv(sitting.instrument, devices, port, cores.responder, alone=alone)
    )
    stack.callback(responder.stop)


WARM_UP_COUNT = 200
WARM_UP_INTERVAL_NS = 1_000_000


def warm_up(sitting: Sitting, options: list[str]) -> None:
    """Use every way once, without keeping it: caches and clocks settle, and a way that is dead shows now."""
    screen, site = sitting.screen, sitting.site
    ways = {
        (block.device, block.cell.probe): block for block in reversed(sitting.part.owed) if block.cell.tool == "probe"
    }
    screen.say("warming up")
    with tempfile.TemporaryDirectory(prefix="sojourn-warm-up-") as scratch:
        prober = BlocksInstrument(
            site.start("a"), blocks_argv(sitting.instrument, site.bed.backend.folder("a", Path(scratch)), 0, options)
        )
        try:
            for (device, probe), block in ways.items():
                asked = request(sitting.plan, site, block) | {
                    "schedule": "regular", "interval_ns": WARM_UP_INTERVAL_NS, "count": WARM_UP_COUNT, "warmup": 0,
                }  # fmt: skip
                answer = prober.measure(asked, screen.tick)
                sitting.log("warm-up", device=device, probe=probe, sent=answer["sent"], received=answer["received"])
                if answer["received"] == 0:
                    raise MachineError(f"nothing answers {probe} over {device}: see `sojourn doctor`")
            prober.finish()
        finally:
            prober.kill()


def request(plan: Plan, site: Site, block: Block) -> dict[str, Any]:
    """One block as the instrument is asked for it."""
    cell = block.cell
    return {
        "block": block.block,
        "device": block.device,
        "round": block.round,
        "visit": block.visit,
        "cell": cell.cell,
        "to": site.to(block),
        "kind": KINDS[cell.probe].kind,
        "request_payload_bytes": cell.request_payload_bytes,
        "response_payload_bytes": cell.response_payload_bytes,
        "schedule": cell.schedule,
        "interval_ns": cell.interval_ns,
        "count": block.count,
        "warmup": block.warmup,
        "timeout_ns": plan.probe.timeout_ns,
        "seed": block.seed,
    }


@contextmanager
def open_witness(sitting: Sitting) -> Iterator[Witness | None]:
    """The independent capture, where the method is judged by one."""
    if sitting.plan.study.method != "departures" or not isinstance(sitting.site, Site):
        yield None
        return
    with Witness(sitting.part.folder, sitting.part.number, sitting.site, sitting.cores.responder) as witness:
        yield witness


def measure_blocks(sitting: Sitting, prober: BlocksInstrument, witness: Witness | None) -> None:
    """Every block in its order, unless the plan's time is up before; then what is left of the plan is taken back."""
    owed = sitting.part.owed
    sitting.screen.begin(len(owed))
    end = time_is_up_at(sitting.plan)
    try:
        for block, before in zip(owed, (None, *owed), strict=False):
            if time.monotonic() > end and before and block.round != before.round and block.round >= LEAST_ROUNDS:
                take_back(sitting.part, block.round, sitting.log)
                break
            measure_block(sitting, prober, witness, block)
    except KeyboardInterrupt:
        prober.finish(at_once=True)
        raise
    prober.finish()
    sitting.screen.end()


LEAST_ROUNDS = 8
"""Fewer pairs than this say nothing, however little time there is."""


def time_is_up_at(plan: Plan) -> float:
    """When the last round may begin no more, on the clock of time.monotonic."""
    return float("inf") if plan.pairs.at_most_ns is None else time.monotonic() + plan.pairs.at_most_ns / 1e9


def take_back(part: Part, rounds: int, log: Log) -> None:
    """Let the effective plan ask for the rounds that there was time for, and say what was asked before."""
    pairs, path = part.plan.pairs, part.folder.plan
    asked = [*asked_in(path), f"pairs.rounds = {pairs.rounds}; the time of pairs.at_most was up after {rounds}"]
    rewrite(path, effective_toml(replace(part.plan, pairs=replace(pairs, rounds=rounds), asked=tuple(asked))))
    log("time-is-up", rounds=rounds, asked=pairs.rounds)


def measure_block(sitting: Sitting, prober: BlocksInstrument, witness: Witness | None, block: Block) -> None:
    """One block, and what is kept of it beside its records."""
    site, screen = sitting.site, sitting.screen
    began = time.clock_gettime_ns(time.CLOCK_TAI)
    identifier = None
    if block.cell.tool == "ping" and isinstance(site, Site):
        identifier = ping_trial(site, block, sitting.cores.prober, screen.tick)
    else:
        answer = prober.measure(request(sitting.plan, site, block), screen.tick)
        sitting.log("block", device=block.device, **without_event(answer))
    if witness:
        witness.window(block, began)
        sitting.log("trial", **trial(block, identifier))
    screen.step()


def trial(block: Block, identifier: int | None) -> dict[str, Any]:
    """What the far end's capture is to be judged by."""
    cell = block.cell
    return {
        "block": block.block,
        "tool": cell.tool,
        "interval_ns": cell.interval_ns,
        "icmp_bytes": cell.request_payload_bytes + 8,
        "count": block.count,
        "icmp_id": identifier,
    }
