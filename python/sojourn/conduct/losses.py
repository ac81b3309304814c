"""Which trials a run has lost: noted when they begin and when their batch is fetched, told when something takes them.

A host that goes takes what was measured since all hosts last answered: what looks like loss there may be the host. A
link that loses its carrier takes the trials over its path. A process that dies takes what was not recorded whole. Does
not measure, and does not decide what is whole (each method's `whole`).
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError, SojournError
from sojourn.records.log import read_log
from sojourn.records.lost import BEGUN, CLOSED, LOST, TOLD, LostTrial, begun_trials, named, still_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from sojourn.conduct.archive import Log
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

CUT = "it had not ended, or its records had not been fetched, when the run ended"


@contextmanager
def batch_of(session: Session, clock: Clock) -> Iterator[Callable[[Trial[Any]], None]]:
    """A batch of trials: call what it gives as each begins. At the end of the block all hosts must be there."""
    begun: list[Trial[Any]] = []
    since: list[Trial[Any]] = []
    """Those since a path was put in place: what that did to links was nobody's loss."""

    def begin(trial: Trial[Any]) -> None:
        if not session.site.bed.turns.is_in_place(trial.path):
            with clock.paused():
                _take_turns(session, trial.path, since)
        session.log(BEGUN, part=session.part.number, trial=trial.block)
        begun.append(trial)
        since.append(trial)

    backend = session.site.bed.backend
    try:
        yield begin
        backend.require_hosts()
    except SojournError:
        _tell_after_error(session, begun, since)
        raise
    blocks = [trial.block for trial in begun]
    session.site.when_gathered(partial(session.log, CLOSED, part=session.part.number, trials=blocks))
    if hit := _hit_by_links(session, since):
        told = tell(session.log, session.part.number, *hit)
        session.screen.say(f"{hit[0]}: {named(told)}")


def _take_turns(session: Session, path: str, begun: list[Trial[Any]]) -> None:
    """Put a path in place, by which ports lose their links: what was lost before is reported first."""
    session.site.bed.backend.require_hosts()
    if hit := _hit_by_links(session, begun):
        session.screen.say(f"{hit[0]}: {named(tell(session.log, session.part.number, *hit))}")
    begun.clear()
    with session.screen.paused():
        session.site.bed.put_in_place(path)
    session.log("in-place", part=session.part.number, path=path)
    begin_to_watch(session)


def begin_to_watch(session: Session) -> None:
    """What happened to links before the first batch is the bed's own doing."""
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
    """Log which trials began and are neither whole nor told lost already; gives all that are lost now."""
    entries = read_log(folder.log, TOLD)
    known, begun = still_lost(entries), begun_trials(entries)
    already = {one.block for one in known}
    trials = {one.block: one for one in every}
    cut = sorted(block for block in begun.keys() & trials.keys() if block not in whole and block not in already)
    for part in sorted({begun[block] for block in cut}):
        known += tell(log, part, CUT, [trials[block] for block in cut if begun[block] == part])
    return sorted(known, key=lambda one: one.block)


def lost_of(folder: RunFolder) -> list[LostTrial]:
    """What is lost, and was not measured again."""
    return still_lost(read_log(folder.log, TOLD))


def _tell_after_error(session: Session, begun: Sequence[Trial[Any]], since: Sequence[Trial[Any]]) -> None:
    """After an error in a batch: whether a host or a link took what was measured."""
    part = session.part.number
    try:
        session.site.bed.backend.require_hosts()
    except MachineError as gone:
        if begun:
            tell(session.log, part, str(gone), begun)
        return
    if hit := _hit_by_links(session, since):
        tell(session.log, part, *hit)


def _hit_by_links(session: Session, begun: Sequence[Trial[Any]]) -> tuple[str, list[Trial[Any]]] | None:
    """Why trials are lost whose path lost a link meanwhile, and which; None where no link did."""
    lost = session.site.bed.backend.lost_links()
    if not lost:
        return None
    link = session.site.bed.topology.link
    hit = [one for one in begun if any(port.dev in lost for port in link(one.path).ports)]
    return (f"{' and '.join(lost.values())} lost its link", hit) if hit else None
