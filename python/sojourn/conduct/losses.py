"""Track lost trials: noted at their begin, released when their batch is fetched, logged when they are lost.

If a host is lost, so are the trials since all hosts last answered: apparent packet loss there may be the host's. If a
link loses its carrier, so are the trials over its path. If a process dies, so is what was not recorded completely. Does
not measure, and does not decide what is complete (each method's `whole`).
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError, SojournError
from sojourn.instruments.conversation import DEATH
from sojourn.records.log import read_log
from sojourn.records.lost import BEGUN, CLOSED, LOST, TOLD, LostTrial, begun_trials, named, still_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from sojourn.conduct.archive import Log
    from sojourn.conduct.part import Session
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

CUT = "it had not ended, or its records had not been fetched, when the run ended"


@contextmanager
def batch_of(session: Session, owed: Sequence[Trial[Any]]) -> Iterator[Callable[[Trial[Any]], None]]:
    """Yield a function to call at the begin of each trial of a batch; at the end of the block all hosts must answer.

    An error that a lost link explains ends a search alone: once the link is back, the run goes on with the next one.
    An error while a program was killed names that program: the others say only that it does not answer.
    """
    begun: list[Trial[Any]] = []
    running = session.site.running()
    session.since.clear()

    def begin(trial: Trial[Any]) -> None:
        session.log(BEGUN, part=session.part.number, trial=trial.block)
        begun.append(trial)
        session.since.append(trial)

    backend = session.site.bed.backend
    try:
        yield begin
        backend.require_hosts()
    except SojournError as error:
        gone = _tell_of_lost_host(session, begun)
        if gone is not None:
            raise gone from error  # what the other hosts say of it is a consequence
        if killed := session.site.killed(running):
            raise MachineError(f"{' and '.join(killed)}{'' if DEATH in str(error) else f' ({error})'}") from error
        if not _is_of_a_link(session, error, owed):
            raise
        return
    blocks = [trial.block for trial in begun]
    session.site.when_gathered(partial(session.log, CLOSED, part=session.part.number, trials=blocks))
    tell_hit_by_links(session)


def tell_hit_by_links(session: Session) -> None:
    """Log the trials whose path lost a link since a path was last put in place, and say them on the screen."""
    if hit := _hit_by_links(session):
        session.screen.say(f"{hit[0]}: {named(tell(session.log, session.part.number, *hit))}")


def begin_to_watch(session: Session) -> None:
    """Discard link changes before the first batch, which the bed itself caused."""
    backend = session.site.bed.backend
    backend.require_hosts()
    backend.lost_links()


def tell(log: Log, part: int, why: str, trials: Sequence[Trial[Any]]) -> list[LostTrial]:
    """Log that these trials of a part are lost."""
    lost = [LostTrial(one.block, part, one.round, one.device, one.cell, why) for one in trials]
    kept = [{"block": one.block, "round": one.round, "path": one.path, "cell": one.cell} for one in lost]
    log(LOST, part=part, why=why, trials=kept, sentence=f"{named(lost)} ({why})")
    return lost


def tell_cut(folder: RunFolder, every: Sequence[Trial[Any]], whole: Set[int], log: Log) -> list[LostTrial]:
    """Log the trials that began but are neither complete nor logged as lost; return all that are lost now."""
    entries = read_log(folder.log, TOLD)
    known, begun = still_lost(entries), begun_trials(entries)
    already = {one.block for one in known}
    trials = {one.block: one for one in every}
    cut = sorted(block for block in begun.keys() & trials.keys() if block not in whole and block not in already)
    for part in sorted({begun[block] for block in cut}):
        known += tell(log, part, CUT, [trials[block] for block in cut if begun[block] == part])
    return sorted(known, key=lambda one: one.block)


def lost_of(folder: RunFolder) -> list[LostTrial]:
    """Return the trials that are lost and were not measured again."""
    return still_lost(read_log(folder.log, TOLD))


def _tell_of_lost_host(session: Session, begun: Sequence[Trial[Any]]) -> MachineError | None:
    """After an error in a batch, log its trials as lost if a host is lost; return that host's error."""
    try:
        session.site.bed.backend.require_hosts()
    except MachineError as gone:
        if begun:
            tell(session.log, session.part.number, str(gone), begun)
        return gone
    return None


def _is_of_a_link(session: Session, error: SojournError, owed: Sequence[Trial[Any]]) -> bool:
    """Return whether a link that a trial needs was lost, and has come back.

    A port that is opened meanwhile has no carrier, for example. Searches alone go on: other programs may still
    owe answers, which the next batch would take for its own. All trials of the batch are lost: those that it
    had not come to would otherwise be missing without a word.
    """
    hit = _hit_by_links(session)
    if hit is None:
        return False
    why, trials = hit
    if not trials or not isinstance(error, MachineError) or "search" not in session.plan.sections:
        tell(session.log, session.part.number, why, trials)
        return False
    lost = tell(session.log, session.part.number, why, owed)
    session.screen.say(f"{why}: {named(lost)} ({error})")
    with session.clock.paused():
        session.site.bed.await_links()
        session.site.bed.require_joined()
    begin_to_watch(session)
    return True


def _hit_by_links(session: Session) -> tuple[str, list[Trial[Any]]] | None:
    """Return the trials whose path lost a link meanwhile, with the reason; None if no link was lost."""
    lost = session.site.bed.backend.lost_links()
    if not lost:
        return None
    session.learned.clear()  # a bridge forgets what it learned at a port whose carrier goes
    link = session.site.bed.topology.link
    hit = [one for one in session.since if any(port.dev in lost for port in link(one.path).ports)]
    return (f"{' and '.join(lost.values())} lost its link", hit) if hit else None
