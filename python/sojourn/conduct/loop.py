"""The one loop over trials: batch by batch in the plan's order, within the time that the plan allows."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from sojourn.conduct.archive import asked_in, rewrite
from sojourn.conduct.bench import Clock
from sojourn.plan import effective_toml

if TYPE_CHECKING:
    from sojourn.conduct.bench import Measure
    from sojourn.conduct.part import Session
    from sojourn.plan import Plan
    from sojourn.plan.ask import Limit


def measure_trials(session: Session, how: Measure) -> None:
    """Measure every trial that the part owes, unless the plan's time is up before."""
    limit, owed, screen = session.plan.ask.limit, session.part.owed, session.screen
    clock = Clock(at_most_ns(session.plan))
    with how.open(session, clock) as bench:
        screen.begin(len(owed))
        clock.start()
        done = 0
        for _, several in groupby(owed, key=lambda trial: trial.batch):
            batch = list(several)
            if limit and clock.is_up and done and batch[0].round >= limit.least:
                give_back(session, limit, batch[0].round, done)
                break
            with bench.batch(batch):
                for trial in batch:
                    bench.measure(trial)
                    screen.step()
            done += len(batch)
        screen.end()


def at_most_ns(plan: Plan) -> int | None:
    """The time that the plan allows for measuring."""
    limit = plan.ask.limit
    found: int | None = plan.sections[limit.section].at_most_ns if limit else None
    return found


def give_back(session: Session, limit: Limit, rounds: int, done: int) -> None:
    """Let the effective plan ask for the rounds that there was time for, and say what was asked before."""
    plan, path = session.plan, session.part.folder.plan
    if limit.rounds is None:
        session.log("time-is-up", searches=done, asked=len(session.part.owed))
        return
    own = plan.sections[limit.section]
    asked, key = getattr(own, limit.rounds), f"{limit.section}.{limit.rounds}"
    said = f"{key} = {asked}; the time of {limit.section}.at_most was up after {rounds}"
    shorter = plan.with_section(limit.section, replace(own, **{limit.rounds: rounds}))
    rewrite(path, effective_toml(replace(shorter, asked=(*asked_in(path), said))))
    session.log("time-is-up", rounds=rounds, asked=asked)
