"""One run, from the plan to the last record: bed, instruments, warm-up, blocks in their order, facts before and after.

However it ends, what was recorded stays readable, and `--resume` does the rest. Does not analyse.
"""

from __future__ import annotations

import errno
import json
import secrets
import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sojourn
from sojourn.bed.facts import compare
from sojourn.conduct.archive import Log, asked_in, rewrite
from sojourn.conduct.cores import Cores, choose_cores, off_core
from sojourn.conduct.departures import Witness, ping_trial
from sojourn.conduct.neighbours import Usage, contention, usage
from sojourn.conduct.remaining import is_finished, next_part, whole_blocks
from sojourn.conduct.site import UDP_PORT, Namespaces, Site, open_site
from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError
from sojourn.instruments import BlocksInstrument, Responder, find_instrument, respond_argv
from sojourn.instruments.blocks import blocks_argv, prober_options
from sojourn.plan import Block, Plan, effective_toml, expand, load_plan
from sojourn.plan.sizes import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.conduct.progress import Screen
    from sojourn.records import RunFolder


class Interrupted(SojournError):  # noqa: N818 - an event, not a fault
    """A person or the system ended it; the folder can be gone on with."""

    status = 130


@dataclass(frozen=True, slots=True)
class Part:
    """One sitting of a run: what it is to measure, and where it writes."""

    plan: Plan
    folder: RunFolder
    number: int
    blocks: Sequence[Block]
    every: int
    """Blocks of the whole run."""


def conduct(plan: Plan, folder: RunFolder, screen: Screen) -> None:
    """Measure everything that the plan asks into a fresh folder."""
    blocks = expand(plan)
    sit(Part(plan, folder, 0, blocks, len(blocks)), screen)


def resume(folder: RunFolder, screen: Screen) -> None:
    """Measure what an interrupted run still owes; nothing, if it is finished."""
    plan = load_plan(folder.plan)
    every = expand(plan)
    done = whole_blocks(folder, plan)
    owed = [block for block in every if block.block not in done]
    if not owed and is_finished(folder):
        screen.say(f"{folder.path} is finished: nothing to measure")
        return
    screen.say(f"{len(done)} of {len(every)} blocks are recorded, {len(owed)} to go")
    sit(Part(plan, folder, next_part(folder), owed, len(every)), screen)


def sit(part: Part, screen: Screen) -> None:
    """Measure one part, and turn whatever ends it early into a sentence."""
    path = part.folder.path
    again = f"go on with: sojourn run --resume {path}"
    with Log(part.folder.log) as log, signals_as_interrupts(), screen:
        try:
            measure(part, log, screen)
        except KeyboardInterrupt as stop:
            log("interrupted")
            raise Interrupted(f"interrupted; what was measured is in {path}; {again}") from stop
        except SojournError as error:
            log_quietly(log, "failed", status=error.status, message=str(error))
            if isinstance(error, RequestError):  # the same plan would be refused again
                raise
            raise type(error)(f"{error}; {again}") from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DoubtfulError(f"the disk of {path} is full: make room, then {again}") from error


def log_quietly(log: Log, event: str, **fields: Any) -> None:
    """Log what can still be logged: on a full disk, the failure itself cannot be."""
    try:
        log(event, **fields)
    except OSError:
        return


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """A polite end by SIGTERM or SIGHUP leaves as Ctrl-C does, which a script's background jobs would ignore."""

    def interrupt(number: int, frame: object) -> None:
        del frame
        raise KeyboardInterrupt(signal.Signals(number).name)

    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]  # nohup stays nohup
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, *hung_up)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def measure(part: Part, log: Log, screen: Screen) -> None:
    """Build, measure, take down."""
    plan = part.plan
    cores = choose_cores(plan.host)
    instrument = find_instrument()
    log("started", part=part.number, run=part.folder.path.resolve().name, study=plan.study.name, blocks=part.every,
        owed=len(part.blocks), version=sojourn.__version__)  # fmt: skip
    screen.say(f"building the bed ({plan.bed.backend})")
    with ExitStack() as stack:
        site = stack.enter_context(open_site(plan, cores, secrets.token_hex(2)))
        log("bed", backend=plan.bed.backend, unprivileged=site.unprivileged, missing=site.missing)
        for sentence in site.missing:
            screen.say(sentence)
        keep_facts(part, site, log)
        fifo = plan.host.fifo is not False and not site.simulated
        options = prober_options(cores.prober, plan.host.wait, fifo=fifo)  # where it is not permitted, it goes without
        start_responder(part, site, cores, instrument, stack)
        if not site.simulated:
            warm_up(part, site, [instrument, options], log, screen)
        argv = blocks_argv(instrument, part.folder.records, part.number, options)
        prober = BlocksInstrument(site.start("a"), argv)
        stack.callback(prober.kill)
        require_as_asked(plan, prober.ready)
        log("ready", part=part.number, cores=cores._asdict(), **without_event(prober.ready))
        before = usage()
        with off_core(cores.prober), open_witness(part, site, cores) as witness:
            try:
                measure_blocks(part, site, prober, witness, Recorder(log, screen, cores))
            finally:
                if not site.simulated:
                    tell_of_neighbours(before, log)
        keep_moment(part, site)
    log("finished", part=part.number)


def tell_of_neighbours(before: Usage, log: Log) -> None:
    """Log what other work went on meanwhile, if it was enough to be felt."""
    found = contention(before, usage())
    event = "contended" if found.is_worth_telling else "undisturbed"
    log(event, value=found.others_cores, sentence=found.sentence, steal_cores=found.steal_cores)


def require_as_asked(plan: Plan, ready: dict[str, Any]) -> None:
    """Refuse to go on without the real-time priority that was asked for by name."""
    if plan.host.fifo and not ready["fifo"]:
        raise MachineError("host.fifo = true, but real-time priority is not permitted: run as root, or set it to auto")


def without_event(answer: dict[str, Any]) -> dict[str, Any]:
    """An instrument's answer as fields of a log entry, which has an event of its own."""
    return {key: value for key, value in answer.items() if key != "event"}


def keep_facts(part: Part, site: Site, log: Log) -> None:
    """Write what the machines are; a later part must find them as the first did, or the log says what changed."""
    facts, path = site.facts(), part.folder.bed
    began = {"part": part.number, "before": facts["moment"], "after": None}
    if path.is_file():
        first = json.loads(path.read_text(encoding="utf-8"))
        changes = [asdict(change) for change in compare(first, facts)]
        if changes:
            log("bed-changed", changes=changes)
        facts = first | {"parts": [*first["parts"], began]}
    else:
        facts["parts"] = [began]
    rewrite(path, json.dumps(facts, indent=2) + "\n")


def keep_moment(part: Part, site: Site) -> None:
    """Write what changed by itself meanwhile, beside what it was before."""
    kept = json.loads(part.folder.bed.read_text(encoding="utf-8"))
    kept["parts"][-1]["after"] = site.moment()
    rewrite(part.folder.bed, json.dumps(kept, indent=2) + "\n")


def start_responder(part: Part, site: Site, cores: Cores, instrument: str, stack: ExitStack) -> None:
    """Start the answering end where a probe needs one of ours."""
    vias = {KINDS[block.cell.probe].via for block in part.blocks}
    if not isinstance(site, Namespaces) or not vias & {"packet", "udp"}:
        return
    arms = sorted({block.arm for block in part.blocks})
    devices = [site.bed.topology.arms[arm].b_dev for arm in arms] if "packet" in vias else []
    port = UDP_PORT if "udp" in vias else None
    alone = cores.responder != cores.prober
    responder = Responder(site.start("b"), respond_argv(instrument, devices, port, cores.responder, alone=alone))
    stack.callback(responder.stop)


WARM_UP_COUNT = 200
WARM_UP_INTERVAL_NS = 1_000_000


def warm_up(part: Part, site: Site, instrument: list[Any], log: Log, screen: Screen) -> None:
    """Use every way once, without keeping it: caches and clocks settle, and a way that is dead shows now."""
    ways = {(block.device, block.cell.probe): block for block in reversed(part.blocks) if block.cell.tool == "probe"}
    screen.say("warming up")
    with tempfile.TemporaryDirectory(prefix="sojourn-warm-up-") as scratch:
        prober = BlocksInstrument(site.start("a"), blocks_argv(instrument[0], Path(scratch), 0, instrument[1]))
        try:
            for (device, probe), block in ways.items():
                asked = request(part.plan, site, block) | {
                    "schedule": "regular", "interval_ns": WARM_UP_INTERVAL_NS, "count": WARM_UP_COUNT, "warmup": 0,
                }  # fmt: skip
                answer = prober.measure(asked, screen.tick)
                log("warm-up", device=device, probe=probe, sent=answer["sent"], received=answer["received"])
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
def open_witness(part: Part, site: Site, cores: Cores) -> Iterator[Witness | None]:
    """The independent capture, where the method is judged by one."""
    if part.plan.study.method != "departures" or not isinstance(site, Namespaces):
        yield None
        return
    with Witness(part.folder, part.number, site, cores.responder) as witness:
        yield witness


@dataclass(frozen=True, slots=True)
class Recorder:
    """What is told about each block."""

    log: Log
    screen: Screen
    cores: Cores


def measure_blocks(part: Part, site: Site, prober: BlocksInstrument, witness: Witness | None, to: Recorder) -> None:
    """Every block in its order, unless the plan's time is up before; then what is left of the plan is taken back."""
    to.screen.begin(len(part.blocks))
    end = time_is_up_at(part.plan)
    try:
        for block, before in zip(part.blocks, (None, *part.blocks), strict=False):
            if time.monotonic() > end and before and block.round != before.round and block.round >= LEAST_ROUNDS:
                take_back(part, block.round, to.log)
                break
            measure_block(part, site, prober, witness, block, to)
    except KeyboardInterrupt:
        prober.finish(at_once=True)
        raise
    prober.finish()
    to.screen.end()


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


def measure_block(
    part: Part, site: Site, prober: BlocksInstrument, witness: Witness | None, block: Block, to: Recorder
) -> None:
    """One block, and what is kept of it beside its records."""
    began = time.clock_gettime_ns(time.CLOCK_TAI)
    identifier = None
    if block.cell.tool == "ping" and isinstance(site, Namespaces):
        identifier = ping_trial(site, block, to.cores.prober, to.screen.tick)
    else:
        answer = prober.measure(request(part.plan, site, block), to.screen.tick)
        to.log("block", device=block.device, **without_event(answer))
    if witness:
        witness.window(block, began)
        to.log("trial", **trial(block, identifier))
    to.screen.step()


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
