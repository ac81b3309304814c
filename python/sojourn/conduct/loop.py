"""The one loop over trials: batch by batch in the plan's order, within the time that the plan allows.

What a run owes is divided over its sessions, whole batches each: as many as there are left for each session that is
left. A session whose share of the time is up leaves the rest of its batches to the next.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sojourn.conduct.archive import asked_in
from sojourn.conduct.clock_trials import clock_trials
from sojourn.conduct.losses import batch_of, begin_to_watch
from sojourn.conduct.turns import put_in_place
from sojourn.plan import effective_toml
from sojourn.plan.sessions import batches_of, least_in_session
from sojourn.records.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.conduct.archive import Log
    from sojourn.conduct.bench import Measure
    from sojourn.conduct.part import Session
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder


GATHER_SECONDS = 30.0
"""What was recorded longer ago outlives its host, and this process: it is brought between two batches."""


def measure_trials(session: Session, how: Measure, share: float) -> int:
    """Measure the trials that the part owes, and return how many: all, unless that share of the plan's time is up."""
    limit, screen, clock = session.plan.ask.limit, session.screen, session.clock
    batches, turns = batches_of(session.part.owed), passes_of(session)
    least = least_in_session(session.plan)
    with how.open(session, clock) as bench, clock_trials(session) as clocks:
        screen.begin(session.part.to_go)
        clock.start(share)
        gathered = time.monotonic()
        begin_to_watch(session)
        clocks.now()
        for number, paths in enumerate(turns):
            rounds, allowed = 0, clock.part_of_rest(len(turns))  # of the first pass alone
            for batch in batches:
                is_last, has_enough = share >= 1, limit is not None and batch[0].round >= limit.least
                # What the first pass had time for, all have.
                may_end = number == 0 and rounds >= least and (has_enough or not is_last)
                if limit and may_end and clock.has_less_than(allowed):
                    break
                own = [one for one in batch if paths is None or one.path in paths]
                with batch_of(session, own) as begin:
                    if own:  # what a batch starts for all of its trials passes the first one's path
                        put_in_place(session, own[0].path)
                    with bench.batch(batch):
                        for trial in own:
                            clocks.if_due()
                            put_in_place(session, trial.path)
                            begin(trial)
                            bench.measure(trial)
                            screen.step()
                    clocks.now()
                if time.monotonic() > gathered + GATHER_SECONDS:
                    session.site.gather()
                    gathered = time.monotonic()
                rounds += 1
            batches = batches[:rounds]
        clock.stop()
    return sum(map(len, batches))


def passes_of(session: Session) -> list[frozenset[str] | None]:
    """The paths of each pass over the batches; None: all. A person re-cables between passes, not between trials."""
    turns = session.site.bed.turns
    if not turns.by_person:
        return [None]
    shared = [path for several in turns.groups for path in several]
    others = frozenset(one.path for one in session.part.owed if turns.place_of(one.path) not in shared)
    passes = [frozenset(one.path for one in session.part.owed if turns.place_of(one.path) == path) for path in shared]
    several = [one for one in passes if one]
    return [others | several[0], *several[1:]] if several else [None]


def give_back(plan: Plan, folder: RunFolder, owed: Sequence[Trial[Any]], done: int, log: Log) -> None:
    """Let the effective plan ask for the rounds that there was time for, and say what was asked before."""
    limit, path = plan.ask.limit, folder.plan
    if limit is None or limit.rounds is None:
        log("time-is-up", searches=done, asked=len(owed))
        return
    rounds = owed[done].round
    own = plan.sections[limit.section]
    asked, key = getattr(own, limit.rounds), f"{limit.section}.{limit.rounds}"
    said = f"{key} = {asked}; the time of {limit.section}.at_most was up after {rounds}"
    shorter = plan.with_section(limit.section, replace(own, **{limit.rounds: rounds}))
    write_whole(path, effective_toml(replace(shorter, asked=(*asked_in(path), said))))
    log("time-is-up", rounds=rounds, asked=asked)
