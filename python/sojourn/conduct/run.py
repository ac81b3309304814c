"""One run, from the plan to the last record: bed, instruments, warm-up, trials in order, facts before and after.

However it ends, its records stay readable, and `--resume` measures the rest. Does not analyse.
"""

from __future__ import annotations

import errno
import secrets
import shutil
import signal
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sojourn.backends import load as load_backend
from sojourn.conduct.archive import Log
from sojourn.conduct.bench import Clock
from sojourn.conduct.cores import choose_cores
from sojourn.conduct.draw import Draw
from sojourn.conduct.emulators import Emulators
from sojourn.conduct.facts import keep_facts, keep_moment
from sojourn.conduct.loop import give_back, measure_trials
from sojourn.conduct.losses import lost_of, tell_cut
from sojourn.conduct.part import Part, Session
from sojourn.conduct.real_hosts import real_hosts, real_paths
from sojourn.conduct.remaining import is_finished, next_bed, next_part, recorded_parts, run_seed
from sojourn.conduct.settings import settings_told
from sojourn.conduct.site import open_site
from sojourn.conduct.until import Until
from sojourn.devices import PERSON
from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError
from sojourn.methods import load
from sojourn.plan import Plan, plan_from_text
from sojourn.plan.sessions import batches_of, limit_ns, of_one_session, sessions_for
from sojourn.records.decode import text_of
from sojourn.records.earlier import plan_text
from sojourn.records.log import read_log
from sojourn.records.lost import named
from sojourn.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set
    from pathlib import Path

    from sojourn.conduct.bench import Measure
    from sojourn.conduct.cores import Cores
    from sojourn.conduct.progress import Screen
    from sojourn.conduct.site import Site
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder


SIMULATED_RUN = 1 << 32
"""The seed of what simulated beds have in common; no session has it as its own."""


class Interrupted(SojournError):  # noqa: N818 - an event, not a fault
    """A person or the system interrupted the run; it can be resumed."""

    status = 130


def conduct(plan: Plan, folder: RunFolder, screen: Screen) -> None:
    """Measure the whole plan in a new folder."""
    every = plan.expand()
    sit(Owed(plan, folder, 0, every, len(every)), screen)


def resume(folder: RunFolder, screen: Screen) -> None:
    """Measure the rest of an interrupted run; nothing, if it is finished."""
    plan = plan_from_text(plan_text(text_of(folder.plan)), str(folder.plan), ())
    every = plan.expand()
    log_bytes = length_of(folder.log)
    done = measured(plan, folder)
    owed = [trial for trial in every if trial.block not in done]
    if not owed and is_finished(folder):
        screen.say(f"{folder.path} is finished: nothing to measure")
        return
    sit(Owed(plan, folder, next_part(folder), owed, len(every), Recorded(frozenset(done), log_bytes)), screen)


def length_of(log: Path) -> int:
    """Return the length of a log; 0 if the run ended before it had one."""
    return log.stat().st_size if log.is_file() else 0


def measured(plan: Plan, folder: RunFolder) -> set[int]:
    """Return the completely recorded trials, without those that the run has lost."""
    done = measure_of(plan).whole(folder, plan) - {one.block for one in lost_of(folder)}
    if not any(path.switch == PERSON for path in real_paths(plan).values()):
        return done
    # A person re-cables between passes over a session's rounds: a round that lacks a path is measured again.
    cut = {trial.round for trial in plan.expand() if trial.block not in done}
    return {trial.block for trial in plan.expand() if trial.round not in cut}


def measure_of(plan: Plan) -> Measure:
    """Return the measurement of the plan's method."""
    found: Measure = load(plan.study.method, "measure").MEASURE
    return found


@dataclass(frozen=True, slots=True)
class Owed:
    """What is to be measured now: a whole run, or the rest of an interrupted one."""

    plan: Plan
    folder: RunFolder
    first_part: int
    trials: Sequence[Trial[Any]]
    every: int
    """The number of trials of the whole run."""
    recorded: Recorded | None = None
    """The recorded trials, if the run is resumed."""

    @property
    def is_resumed(self) -> bool:
        """Whether the run is resumed."""
        return self.recorded is not None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded trials of a resumed run, and the length of its log when they were read."""

    trials: frozenset[int]
    log_bytes: int

    def now(self, plan: Plan, folder: RunFolder) -> Set[int]:
        """Return the trials recorded now; they are read again only if the log has grown."""
        return self.trials if length_of(folder.log) == self.log_bytes else measured(plan, folder)


def sit(owed: Owed, screen: Screen) -> None:
    """Measure all of it, and turn an early end into a sentence."""
    path, plan = owed.folder.path, owed.plan
    again = f"go on with: sojourn run --resume {path}"
    is_held = False
    if owed.is_resumed:
        for entry in read_log(owed.folder.log):
            screen.hear(entry)
    with Log(owed.folder.log, screen.hear) as log, signals_as_interrupts(), screen:
        try:
            with load_backend(plan.bed.backend).hold(real_hosts(plan), secrets.token_hex(2)):
                is_held = True
                measure(owed, log, screen)
        except KeyboardInterrupt as stop:
            log("interrupted")
            raise Interrupted(f"interrupted; what was measured is in {path}; {again}") from stop
        except SojournError as error:
            told = str(error)
            if is_held or not owed.is_resumed:  # otherwise the run may still be in progress, and its log is not ours
                told += lost(owed, log)
                log_quietly(log, "failed", status=error.status, message=told)
            if isinstance(error, RequestError):  # the same plan would be refused again
                raise
            raise type(error)(f"{told}; {again}") from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            full, advice = f"the disk of {path} is full", "make room"
            if error.errno == errno.EFBIG:
                full, advice = "a file would exceed the limit of file sizes", "raise it (`ulimit -f`)"
            raise DoubtfulError(f"{full}{lost(owed, log)}: {advice}, then {again}") from error


def lost(owed: Owed, log: Log) -> str:
    """Return the lost trials, as the end of an error's sentence; empty if there are none, or they are unknown."""
    try:
        several = tell_cut(owed.folder, owed.plan.expand(), measured(owed.plan, owed.folder), log)
    except (OSError, SojournError):  # the error that is being reported has precedence
        return ""
    return f"; {named(several)}" if several else ""


def log_quietly(log: Log, event: str, **fields: Any) -> None:
    """Log an event if possible: on a full disk the failure itself cannot be logged."""
    try:
        log(event, **fields)
    except OSError:
        return


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, and SIGINT too, which a script's background jobs ignore."""

    def interrupt(number: int, frame: object) -> None:
        del frame
        raise KeyboardInterrupt(signal.Signals(number).name)

    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]  # respect nohup
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, *hung_up)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def measure(owed: Owed, log: Log, screen: Screen) -> None:
    """Measure the remaining trials, on hosts that nobody else uses meanwhile."""
    if owed.recorded is not None:
        every = owed.plan.expand()
        if cut := tell_cut(owed.folder, every, owed.recorded.now(owed.plan, owed.folder), log):
            screen.say(f"{named(cut)}; they are measured again")
        done, left = len(every) - len(owed.trials), len(owed.trials)
        screen.say(f"{done} of {len(every)} trials are recorded, {left} to go")
        remove_analysis(owed.folder)
    measure_sessions(owed, log, screen)


def remove_analysis(folder: RunFolder) -> None:
    """Remove the analysis of the run's first part, so that nobody takes it for that of the whole run."""
    try:
        shutil.rmtree(folder.analysis)
    except FileNotFoundError:  # there is none, or another process is removing it
        return
    except OSError as error:
        raise MachineError(f"{folder.analysis} cannot be removed: {error.strerror or error}: remove it") from error


def measure_sessions(owed: Owed, log: Log, screen: Screen) -> None:
    """Measure session after session, each a part of the run with its own bed, until no trial remains."""
    plan, done, part = owed.plan, 0, owed.first_part
    clock, starts = Clock(limit_ns(plan)), plan.ask.starts(plan)
    had = -(-len(recorded_parts(owed.folder)) // starts)
    sessions = sessions_for(len(batches_of(owed.trials)), plan.bed.sessions - had, plan.ask.session_batches)
    bed = next_bed(owed.folder, part)
    first, holds = True, held_by_any(plan, owed.trials)
    until = Until(plan, owed.folder, log, screen)
    end = until.has_ended()
    for session in range(1, sessions + 1):
        left = owed.trials[done:]
        if end or (not left and (not first or until.has_stopped)):
            break
        several = of_one_session(left, sessions - session + 1)
        one = Part(plan, owed.folder, part, several, owed.every, bed, len(owed.trials) if first else 0, holds)
        done += measure_session(one, clock, session / sessions, log, screen)
        part, bed, first = part + starts, bed + 1, False
        end = until.after_session(owed.every - len(owed.trials) + done, had + session)
    if end:
        until.stop(end, owed.trials, done)
    elif done < len(owed.trials):
        give_back(plan, owed.folder, owed.trials, done, log)
    if missing := lost_of(owed.folder):
        raise DoubtfulError(f"the run has measured all else, but {missing[0].why}")
    log("finished", part=part - 1)


def measure_session(part: Part, clock: Clock, share: float, log: Log, screen: Screen) -> int:
    """Build the bed, measure, remove the bed; return the number of measured trials."""
    plan = part.plan
    draw = draw_of(part)
    cores = choose_cores(plan, None if draw is None else draw.cores)
    log_started(part, draw, log)
    screen.note(f"building the bed ({plan.bed.backend})")
    with (
        settings_told(part, log, screen) as told,
        open_site(plan, cores, secrets.token_hex(2), draw, part.folder.boxes) as site,
    ):
        told(site)
        log(
            "bed",
            backend=plan.bed.backend,
            unprivileged=site.bed.backend.unprivileged,
            missing=site.bed.backend.missing,
            **({"left_out": site.bed.left_out} if site.bed.left_out else {}),
            **({"delaying": site.bed.delaying} if site.bed.delaying else {}),
        )
        for sentence in site.bed.backend.missing:
            screen.note(sentence)
        if "aslr" in part.holds:
            site.require_fixed_addresses()
        done, starts = 0, plan.ask.starts(plan)
        for start in range(starts):
            left = part.owed[done:]
            one = replace(part, number=part.number + start, owed=of_one_session(left, starts - start))
            if start:
                if not left:
                    break
                one = replace(one, to_go=0)
                log_started(one, draw, log)
            done += measure_start(one, site, cores, clock, share, log, screen)
        site.bed.backend.look_at_settings()
    return done


def measure_start(  # noqa: PLR0913, PLR0917 - all that a session has
    part: Part, site: Site, cores: Cores, clock: Clock, share: float, log: Log, screen: Screen
) -> int:
    """Start the instruments on an existing bed, measure, end them; return the number of measured trials."""
    plan = part.plan
    keep_facts(part, site, log)
    instrument = site.bed.backend.instrument()
    with Emulators(part, site, cores, instrument, log) as emulators:
        session = Session(part, site, cores, instrument, log, screen, emulators, clock)
        done = measure_trials(session, measure_of(plan), share)
    keep_moment(part, site, log)
    return done


def log_started(part: Part, draw: Draw | None, log: Log) -> None:
    """Log what a part is, and what was drawn for its bed."""
    log("started", part=part.number, bed=part.bed, run=part.folder.path.resolve().name, study=part.plan.study.name,
        blocks=part.every, owed=len(part.owed), version=__version__,
        draw=None if draw is None else draw.told())  # fmt: skip


def held_by_any(plan: Plan, trials: Sequence[Trial[Any]]) -> frozenset[str]:
    """Return what any bed for these trials holds: all trials of a round are on one bed."""
    if plan.bed.sessions == 1:
        return frozenset()
    one_of_each_round = {trial.round: trial for trial in trials}.values()
    return frozenset(what for trial in one_of_each_round for what in plan.ask.hold(plan, trial))


def draw_of(part: Part) -> Draw | None:
    """Return the session's draw; None if the run has only one session. A simulated draw is the same in every run."""
    plan, bed = part.plan, part.plan.bed
    if bed.sessions == 1:
        return None
    held = plan.ask.hold(plan, part.owed[0]) if part.owed else bed.hold
    switches = plan.ask.switch(plan, part.owed[0]) if part.owed else {}
    if bed.simulated:
        return Draw(part.bed, SIMULATED_RUN, held, switches)
    common = run_seed(part.folder)
    seed = secrets.randbits(32)
    return Draw(seed, secrets.randbits(32) if common is None else common, held, switches)
