"""One run, from the plan to the last record: bed, instruments, warm-up, trials in their order, facts before and after.

However it ends, what was recorded stays readable, and `--resume` does the rest. Does not analyse.
"""

from __future__ import annotations

import errno
import secrets
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sojourn
from sojourn.conduct.archive import Log
from sojourn.conduct.cores import choose_cores
from sojourn.conduct.emulators import Emulators
from sojourn.conduct.facts import keep_facts, keep_moment
from sojourn.conduct.loop import measure_trials
from sojourn.conduct.part import Part, Session, wants_fifo
from sojourn.conduct.remaining import is_finished, next_part
from sojourn.conduct.site import open_site
from sojourn.errors import DoubtfulError, RequestError, SojournError
from sojourn.methods import load
from sojourn.plan import Plan, plan_from_text
from sojourn.records.earlier import plan_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.conduct.bench import Measure
    from sojourn.conduct.progress import Screen
    from sojourn.records import RunFolder


class Interrupted(SojournError):  # noqa: N818 - an event, not a fault
    """A person or the system ended it; the folder can be gone on with."""

    status = 130


def conduct(plan: Plan, folder: RunFolder, screen: Screen) -> None:
    """Measure everything that the plan asks into a fresh folder."""
    every = plan.expand()
    sit(Part(plan, folder, 0, every, len(every)), screen)


def resume(folder: RunFolder, screen: Screen) -> None:
    """Measure what an interrupted run still owes; nothing, if it is finished."""
    plan = plan_from_text(plan_text(folder.plan.read_text(encoding="utf-8")), str(folder.plan), ())
    every = plan.expand()
    done = measure_of(plan).whole(folder, plan)
    owed = [trial for trial in every if trial.block not in done]
    if not owed and is_finished(folder):
        screen.say(f"{folder.path} is finished: nothing to measure")
        return
    screen.say(f"{len(every) - len(owed)} of {len(every)} trials are recorded, {len(owed)} to go")
    sit(Part(plan, folder, next_part(folder), owed, len(every)), screen)


def measure_of(plan: Plan) -> Measure:
    """How the plan's method measures."""
    found: Measure = load(plan.study.method, "measure").MEASURE
    return found


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
    cores = choose_cores(plan)
    log("started", part=part.number, run=part.folder.path.resolve().name, study=plan.study.name, blocks=part.every,
        owed=len(part.owed), version=sojourn.__version__)  # fmt: skip
    screen.say(f"building the bed ({plan.bed.backend})")
    with open_site(plan, cores, secrets.token_hex(2)) as site:
        log(
            "bed",
            backend=plan.bed.backend,
            unprivileged=site.bed.backend.unprivileged,
            missing=site.bed.backend.missing,
        )
        for sentence in site.bed.backend.missing:
            screen.say(sentence)
        keep_facts(part, site, log)
        instrument = site.bed.backend.instrument()
        with Emulators(part, site, cores, instrument, log, fifo=wants_fifo(plan)) as emulators:
            session = Session(part, site, cores, instrument, log, screen, emulators)
            measure_trials(session, measure_of(plan))
        keep_moment(part, site)
    log("finished", part=part.number)
