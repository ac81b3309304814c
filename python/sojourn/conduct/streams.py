"""Trials that are streams in a fixed matrix: each with its rate and its load decided, the tester qualified first.

A trial that was kept is never measured again. Does not run a single trial itself (tester does).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.closed import ClosedLoop
from sojourn.conduct.counters import Counters
from sojourn.conduct.ends import Ends
from sojourn.conduct.facts import watch_neighbours
from sojourn.conduct.messages import Messages
from sojourn.conduct.remaining import next_block
from sojourn.conduct.repeats import repeat
from sojourn.conduct.taps import Taps
from sojourn.conduct.tester import Tester
from sojourn.conduct.throughput import Limits, choose_engines, qualify
from sojourn.devices import BYPASS
from sojourn.plan.trials import CLOSED_LOOPS, SEARCH_BLOCKS
from sojourn.records import read_table
from sojourn.records.log import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed.model import Link
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.plan.trial import Trial
    from sojourn.plan.trials import Factors
    from sojourn.records import RunFolder

ROUND_TRIPS_PPS = 1000.0
"""Requests to a group do not wait for an answer, since no single one is the last: they leave at this rate."""


@dataclass(frozen=True, slots=True)
class Matrix(Bench):
    """A fixed matrix of streams, the tester qualified first."""

    limits: Limits
    closed: ClosedLoop

    def measure(self, trial: Trial[Factors]) -> None:
        """Measure one trial, with its rate and its load decided by what the path was found to carry."""
        tester, factors = self.limits.tester, trial.factors
        asked = tester.asked(trial, decided_rate(self.limits, trial), decided_load(self.limits, trial))
        if factors.kind in CLOSED_LOOPS and factors.to == "unicast":
            self.closed.measure(asked)
        else:
            # Where the question is what happens above the tester's limit, trying again would not lift that.
            beyond = self.limits.is_beyond(asked.rate_pps, factors.frame_bytes, factors.engine)
            tester.measure(asked, **({"attempts": 1} if beyond else {}))


def streams(
    *, floods: bool = False, times_regular: bool = False, all_stamps: bool = False, taps: bool = False
) -> Measure:
    """How a method measures whose trials are streams in a fixed matrix; see `Tester` for the choices."""

    @contextmanager
    def opened(session: Session, clock: Clock) -> Iterator[Bench]:
        del clock
        with testing(session, floods=floods, all_stamps=all_stamps) as limits, ExitStack() as stack:
            limits.tester.times_regular = times_regular
            own = limits.tester.taps = stack.enter_context(Taps(session)) if taps else None
            yield Matrix(limits, ClosedLoop(limits.tester, stack))
            if own is not None:
                repeat(limits.tester, own.means, own.trials)

    return Measure(opened, lambda folder, _: whole_streams(folder))


@contextmanager
def testing(session: Session, *, floods: bool, all_stamps: bool) -> Iterator[Limits]:
    """The ends of streams, qualified; their records are closed however the block ends."""
    with (
        watch_neighbours(session),
        Ends(session) as ends,
        session.site.bed.backend.without(session.cores.prober),
        ExitStack() as stack,
    ):
        number = next_block(session.part.folder, SEARCH_BLOCKS)
        messages, counters = Messages(session, stack), Counters(session.site)
        tester = Tester(session, ends, messages, counters, number, floods=floods, all_stamps=all_stamps)
        limits = Limits(tester)
        try:
            session.screen.say("qualifying the tester")
            tester.engines = choose_engines(tester)
            if not session.site.simulated:
                qualify(limits)
            yield limits
        except BaseException:
            ends.finish(at_once=True)
            raise
        ends.finish()


def decided_rate(limits: Limits, trial: Trial[Factors]) -> float | None:
    """The rate that is asked in frames per second, a share being one of the path's own throughput."""
    factors = trial.factors
    if factors.kind in CLOSED_LOOPS:
        return ROUND_TRIPS_PPS
    if factors.rate_share is None:
        return factors.rate_pps
    return factors.rate_share * limits.path_pps(trial.first_path, factors.frame_bytes, factors.engine)


def decided_load(limits: Limits, trial: Trial[Factors]) -> tuple[Link, float] | None:
    """The link of the background load and its rate: as much beside the device as it would be through it."""
    factors, tester = trial.factors, limits.tester
    if not factors.load or tester.session.site.simulated:
        return None
    path = trial.first_path + BYPASS if factors.load_via == "beside" else trial.path
    pps = limits.path_pps(trial.first_path, tester.session.plan.stream.load_frame_bytes, "packet")
    return tester.link(path), factors.load * pps


def whole_streams(folder: RunFolder) -> set[int]:
    """The planned trials that were kept and whose records are there, those of both ends."""
    names = ("part", "block", "role")
    rows = read_table(folder.records, "streams", columns=["block", "role", "purpose"]).frame
    rows = rows.filter(pl.col("purpose") != "load").select(names)
    sent, received = (set(rows.filter(role=role).select(names[:2]).iter_rows()) for role in ("send", "receive"))
    asked = read_table(folder.records, "blocks", columns=["block"]).frame["block"]  # of closed loops, by one end
    recorded = {block for _, block in sent & received} | set(asked)
    return {
        entry["trial"]
        for entry in read_log(folder.log, {"stream-trial"})
        if entry.get("event") == "stream-trial"
        and entry["kept"]
        and entry["trial"] is not None
        and entry["block"] in recorded
    }
