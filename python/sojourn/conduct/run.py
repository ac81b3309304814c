"""One run, from the plan to the last record: bed, instruments, warm-up, blocks in their order, facts before and after.

However it ends, what was recorded stays readable, and `--resume` does the rest. Does not analyse.
"""

from __future__ import annotations

import errno
import secrets
import signal
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import sojourn
from sojourn.conduct import blocks, costs, searches, tcp, trials
from sojourn.conduct.archive import Log
from sojourn.conduct.cores import choose_cores
from sojourn.conduct.emulators import Emulators
from sojourn.conduct.facts import keep_facts, keep_moment
from sojourn.conduct.part import Part, Sitting, wants_fifo
from sojourn.conduct.remaining import is_finished, next_part, whole_blocks, whole_searches, whole_trials
from sojourn.conduct.site import open_site
from sojourn.errors import DoubtfulError, RequestError, SojournError
from sojourn.instruments import find_instrument
from sojourn.plan import Plan, expand, expand_costs, expand_tcp, load_plan
from sojourn.plan.trials import expand_searches, expand_trials
from sojourn.plan.types import PAIR_METHODS, SEARCH_METHODS, STREAM_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sojourn.conduct.progress import Screen
    from sojourn.records import RunFolder


class Interrupted(SojournError):  # noqa: N818 - an event, not a fault
    """A person or the system ended it; the folder can be gone on with."""

    status = 130


def conduct(plan: Plan, folder: RunFolder, screen: Screen) -> None:
    """Measure everything that the plan asks into a fresh folder."""
    every = METHODS[plan.study.method].expand(plan)
    sit(Part(plan, folder, 0, every, len(every)), screen)


def resume(folder: RunFolder, screen: Screen) -> None:
    """Measure what an interrupted run still owes; nothing, if it is finished."""
    plan = load_plan(folder.plan)
    method = METHODS[plan.study.method]
    every = method.expand(plan)
    done = method.whole(folder, plan)
    owed = [one for one in every if method.number(one) not in done]
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
    """Build, measure by the plan's method, take down."""
    plan = part.plan
    cores = choose_cores(plan.host)
    instrument = find_instrument()
    log("started", part=part.number, run=part.folder.path.resolve().name, study=plan.study.name, blocks=part.every,
        owed=len(part.owed), version=sojourn.__version__)  # fmt: skip
    screen.say(f"building the bed ({plan.bed.backend})")
    with open_site(plan, cores, secrets.token_hex(2)) as site:
        log("bed", backend=plan.bed.backend, unprivileged=site.bed.unprivileged, missing=site.bed.missing)
        for sentence in site.bed.missing:
            screen.say(sentence)
        keep_facts(part, site, log)
        with Emulators(part, site, cores, instrument, log, fifo=wants_fifo(plan)) as emulators:
            METHODS[plan.study.method].measure(Sitting(part, site, cores, instrument, log, screen, emulators))
        keep_moment(part, site)
    log("finished", part=part.number)


class Method(NamedTuple):
    """What a method owes, how that is numbered, what of it is done, and how the rest is measured."""

    expand: Callable[[Plan], Sequence[Any]]
    number: Callable[[Any], int]
    whole: Callable[[RunFolder, Plan], set[int]]
    measure: Callable[[Sitting], None]


BLOCKS = Method(expand, attrgetter("block"), whole_blocks, blocks.measure_all)
TRIALS = Method(expand_trials, attrgetter("block"), whole_trials, trials.measure_all)
SEARCHES = Method(expand_searches, attrgetter("number"), whole_searches, searches.measure_all)
CONNECTIONS = Method(expand_tcp, attrgetter("block"), tcp.whole_trials, tcp.measure_all)
METHODS: dict[str, Method] = {
    **dict.fromkeys(PAIR_METHODS, BLOCKS),
    **dict.fromkeys(STREAM_METHODS, TRIALS),
    **dict.fromkeys(SEARCH_METHODS, SEARCHES),
    **dict.fromkeys(("tcp-truth", "tcp-perturbation"), CONNECTIONS),
    "tcp-cost": Method(expand_costs, attrgetter("number"), costs.whole_pairs, costs.measure_all),
}
