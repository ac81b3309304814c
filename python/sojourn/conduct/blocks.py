"""Trials that are blocks of probes, sent by `probe blocks`, with our responder for probes that need it.

A complete block is never measured again. Does not build the bed, and does not handle the end of a run.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.facts import watch_neighbours
from sojourn.conduct.part import require_as_asked, without_event
from sojourn.conduct.site import UDP_PORT
from sojourn.errors import MachineError
from sojourn.instruments import BlocksInstrument, Responder, respond_argv
from sojourn.instruments.blocks import blocks_argv
from sojourn.instruments.conversation import place_options
from sojourn.plan.sizes import KINDS
from sojourn.records import RunFolder, read_table
from sojourn.records.reader import rows_of_blocks
from sojourn.records.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.conduct.site import Site
    from sojourn.plan import Plan
    from sojourn.plan.probes import Probing
    from sojourn.plan.trial import Trial


@dataclass
class Blocks(Bench):
    """Trials that are blocks of probes of one long-lived prober."""

    session: Session
    prober: BlocksInstrument

    def measure(self, trial: Trial[Probing]) -> None:
        """Measure one block."""
        session = self.session
        answer = self.prober.measure(request(session.plan, session.site, trial), session.screen.tick)
        session.log("block", device=trial.device, **without_event(answer))


@contextmanager
def open_blocks(session: Session, clock: Clock) -> Iterator[Bench]:
    """Start the instruments for blocks of probes only."""
    del clock
    with open_prober(session) as prober:
        yield Blocks(session, prober)


@contextmanager
def open_prober(session: Session, beside: Collection[str] = ()) -> Iterator[BlocksInstrument]:
    """Start responder and prober, and warm up; the responder also answers probes of the kinds in `beside`."""
    plan, part, site = session.plan, session.part, session.site
    options = place_options(session.cores.prober, plan.host.wait, fifo=session.fifo)
    with ExitStack() as stack:
        start_responder(session, stack, beside)
        if not site.simulated:
            warm_up(session, options)
        argv = blocks_argv(session.instrument, session.records("a"), part.number, options, simulated=site.simulated)
        prober = BlocksInstrument(site.start("a"), argv)
        stack.callback(prober.kill)
        require_as_asked(plan, prober.ready)
        session.log("ready", part=part.number, cores=session.cores._asdict(), **without_event(prober.ready))
        with session.site.bed.backend.without(session.cores.prober), watch_neighbours(session):
            try:
                yield prober
            except KeyboardInterrupt:
                prober.finish(at_once=True)
                raise
            prober.finish()


def start_responder(session: Session, stack: ExitStack, beside: Collection[str] = ()) -> None:
    """Start our responder if a probe needs it."""
    blocks, site, cores = session.part.owed, session.site, session.cores
    vias = {KINDS[probe].via for probe in (*beside, *{block.factors.probe for block in blocks})}
    if site.simulated or not vias & {"packet", "udp"}:
        return
    paths = sorted({block.path for block in blocks})
    devices = [site.bed.topology.paths[path].b_dev for path in paths] if "packet" in vias else []
    port = UDP_PORT if "udp" in vias else None
    alone = cores.responder != cores.prober
    amplified = any(is_longer_back(block.factors) for block in blocks)
    argv = respond_argv(session.instrument, devices, port, cores.responder, alone=alone, amplified=amplified)
    stack.callback(Responder(site.start("b"), argv).stop)


def is_longer_back(factors: Probing) -> bool:
    """Return whether responses are longer than requests: a responder sends those only to permitted addresses."""
    return factors.response_payload_bytes > factors.request_payload_bytes


WARM_UP_COUNT = 200
WARM_UP_INTERVAL_NS = 1_000_000


def warm_up(session: Session, options: list[str]) -> None:
    """Send discarded probes over every path: caches fill, clock rates rise, and a dead path is found early."""
    screen, site = session.screen, session.site
    ways = {
        (block.device, block.factors.probe): block
        for block in reversed(session.part.owed)
        if block.factors.tool == "probe"
    }
    screen.note("warming up")
    with scratch("warm-up") as spare:
        folder = site.bed.backend.folder("a", spare)
        prober = BlocksInstrument(site.start("a"), blocks_argv(session.instrument, folder, 0, options))
        try:
            for (device, probe), block in sorted(ways.items(), key=lambda one: one[1].path):
                with screen.paused():
                    site.bed.put_in_place(block.path)
                own = (
                    one.factors.interval_ns
                    for one in session.part.owed
                    if one.factors.tool == "probe" and one.factors.probe == probe
                )
                interval_ns = min([WARM_UP_INTERVAL_NS, *filter(None, own)])
                asked = request(session.plan, site, block) | {
                    "schedule": "regular", "interval_ns": interval_ns, "count": WARM_UP_COUNT, "warmup": 0,
                }  # fmt: skip
                answer = prober.measure(asked, screen.tick)
                session.log("warm-up", device=device, probe=probe, sent=answer["sent"], received=answer["received"])
                if answer["received"] == 0:
                    raise MachineError(f"nothing answers {probe} over {device}: see `sojourn doctor`")
            prober.finish()
        finally:
            prober.kill()


def request(plan: Plan, site: Site, trial: Trial[Probing]) -> dict[str, Any]:
    """Return the request for one block."""
    factors = trial.factors
    return {
        "block": trial.block,
        "device": trial.device,
        "round": trial.round,
        "visit": trial.visit,
        "cell": trial.cell,
        "to": site.to(trial),
        "kind": KINDS[factors.probe].kind,
        "request_payload_bytes": factors.request_payload_bytes,
        "response_payload_bytes": factors.response_payload_bytes,
        "schedule": factors.schedule,
        "interval_ns": factors.interval_ns,
        "count": trial.count,
        "warmup": trial.warmup,
        "timeout_ns": plan.probe.timeout_ns,
        "seed": trial.seed,
    }


def probed_blocks(folder: RunFolder) -> set[int]:
    """Return the blocks that sent all their probes and have a record of each."""
    blocks = read_table(folder.records, "blocks", columns=("block", "count", "sent")).frame
    recorded = rows_of_blocks(folder.records, "probes")
    asked = blocks.filter(pl.col("sent") == pl.col("count")).select("part", "block", "count")
    return {block for part, block, count in asked.iter_rows() if recorded.get((part, block)) == count}


PROBES = Measure(open_blocks, lambda folder, _: probed_blocks(folder))
"""The measurement of methods whose trials are blocks of probes."""
