"""Methods with a fixed matrix of streams: every trial in its order, the tester qualified first.

A trial that was kept is never measured again. Does not run a single trial itself (tester does).
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sojourn.bed.model import DECOY
from sojourn.conduct.archive import asked_in, rewrite
from sojourn.conduct.closed import ClosedLoop
from sojourn.conduct.cores import off_core
from sojourn.conduct.counters import Counters
from sojourn.conduct.ends import Ends
from sojourn.conduct.facts import tell_of_neighbours
from sojourn.conduct.remaining import next_block
from sojourn.conduct.tester import Tester
from sojourn.conduct.throughput import Limits, choose_engines, qualify
from sojourn.plan import effective_toml
from sojourn.plan.trials import CLOSED_LOOPS, SEARCH_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.bed.model import Link
    from sojourn.conduct.part import Sitting
    from sojourn.plan.trials import Trial

LEAST_ROUNDS = 2
"""Fewer rounds than this say nothing, however little time there is."""


ROUND_TRIPS_PPS = 1000.0
"""Requests to a group do not wait for an answer, since no single one is the last: they leave at this rate."""


def measure_all(sitting: Sitting) -> None:
    """Qualify the tester, then every trial that the part owes."""
    with testing(sitting) as limits, ExitStack() as stack:
        closed = ClosedLoop(limits.tester, stack)
        measure_trials(Matrix(sitting, limits, closed), sitting.part.owed)


@contextmanager
def testing(sitting: Sitting) -> Iterator[Limits]:
    """The ends of streams, qualified; their records are closed however the block ends."""
    before = sitting.site.bed.backend.usage()
    with Ends(sitting) as ends, Counters(sitting.site) as counters, off_core(sitting.cores.prober):
        tester = Tester(sitting, ends, counters, next_block(sitting.part.folder, SEARCH_BLOCKS))
        limits = Limits(tester)
        try:
            sitting.screen.say("qualifying the tester")
            tester.engines = choose_engines(tester)
            if not sitting.site.simulated:
                qualify(limits)
            yield limits
        except BaseException:
            ends.finish(at_once=True)
            raise
        else:
            ends.finish()
        finally:
            if not sitting.site.simulated:
                tell_of_neighbours(before, sitting.site, sitting.log)


@dataclass(frozen=True, slots=True)
class Matrix:
    """What every trial of the matrix needs."""

    sitting: Sitting
    limits: Limits
    closed: ClosedLoop


def measure_trials(matrix: Matrix, owed: Sequence[Trial]) -> None:
    """Every trial, unless the plan's time is up before; then what is left of the plan is taken back."""
    sitting = matrix.sitting
    sitting.screen.begin(len(owed))
    end = time_is_up_at(sitting)
    for trial, before in zip(owed, (None, *owed), strict=False):
        if time.monotonic() > end and before and trial.round != before.round and trial.round >= LEAST_ROUNDS:
            take_back(sitting, trial.round)
            break
        measure_trial(matrix, trial)
        sitting.screen.step()
    sitting.screen.end()


def time_is_up_at(sitting: Sitting) -> float:
    """When the last round may begin no more, on the clock of time.monotonic."""
    at_most = sitting.plan.trials.at_most_ns
    return float("inf") if at_most is None else time.monotonic() + at_most / 1e9


def take_back(sitting: Sitting, rounds: int) -> None:
    """Let the effective plan ask for the rounds that there was time for, and say what was asked before."""
    plan, path = sitting.plan, sitting.part.folder.plan
    asked = [*asked_in(path), f"trials.rounds = {plan.trials.rounds}; the time of trials.at_most was up after {rounds}"]
    rewrite(path, effective_toml(replace(plan, trials=replace(plan.trials, rounds=rounds), asked=tuple(asked))))
    sitting.log("time-is-up", rounds=rounds, asked=plan.trials.rounds)


def measure_trial(matrix: Matrix, trial: Trial) -> None:
    """One trial, with its rate and its load settled by what the arm was found to carry."""
    tester, factors = matrix.limits.tester, trial.factors
    asked = tester.asked(trial, settled_rate(matrix.limits, trial), settled_load(matrix.limits, trial))
    if factors.kind in CLOSED_LOOPS and factors.to == "unicast":
        matrix.closed.measure(asked)
    else:
        # Where the question is what happens above the tester's limit, trying again would not lift that.
        beyond = matrix.limits.is_beyond(asked.rate_pps, factors.frame_bytes, factors.engine)
        tester.measure(asked, **({"attempts": 1} if beyond else {}))


def settled_rate(limits: Limits, trial: Trial) -> float | None:
    """The rate that is asked in frames per second, a share being one of the arm's own throughput."""
    factors = trial.factors
    if factors.kind in CLOSED_LOOPS:
        return ROUND_TRIPS_PPS
    if factors.rate_share is None:
        return factors.rate_pps
    return factors.rate_share * limits.arm_pps(trial.arm, factors.frame_bytes, factors.engine)


def settled_load(limits: Limits, trial: Trial) -> tuple[Link, float] | None:
    """The link of the background load and its rate: as much beside the device as it would be through it."""
    factors, tester = trial.factors, limits.tester
    if not factors.load or tester.sitting.site.simulated:
        return None
    arm = trial.arm + DECOY if factors.load_via == "beside" else trial.arm
    pps = limits.arm_pps(trial.arm, tester.sitting.plan.stream.load_frame_bytes, "packet")
    return tester.link(arm), factors.load * pps
