"""Trials that are streams in a fixed matrix: rate and load are decided per trial, and the tester is qualified first.

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
from sojourn.conduct.device_records import lacking_at_device
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
from sojourn.records.clock_trials import CLOCK_BLOCKS
from sojourn.records.log import read_log
from sojourn.records.lost import STREAM_TRIAL, in_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sojourn.bed.model import Link
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.plan.trial import Trial
    from sojourn.plan.trials import Factors
    from sojourn.records import RunFolder

ROUND_TRIPS_PPS = 1000.0
"""The rate of requests to a group, which do not wait for an answer, because no single answer is the last."""


@dataclass(frozen=True, slots=True)
class Matrix(Bench):
    """A fixed matrix of streams, with a qualified tester."""

    limits: Limits
    closed: ClosedLoop

    def measure(self, trial: Trial[Factors]) -> None:
        """Measure one trial, with rate and load derived from the path's measured throughput."""
        tester, factors = self.limits.tester, trial.factors
        asked = tester.asked(trial, decided_rate(self.limits, trial), decided_load(self.limits, trial))
        if factors.kind in CLOSED_LOOPS and factors.to == "unicast":
            self.closed.measure(asked)
        else:
            # If the test goes beyond the tester's limit, further attempts would not change that.
            beyond = self.limits.is_beyond(asked.rate_pps, factors.frame_bytes, factors.engine)
            tester.measure(asked, **({"attempts": 1} if beyond else {}))


def streams(
    *, floods: bool = False, times_regular: bool = False, all_stamps: bool = False, taps: bool = False
) -> Measure:
    """Return the measurement of a method whose trials are streams in a fixed matrix; see `Tester` for the options."""

    @contextmanager
    def opened(session: Session, clock: Clock) -> Iterator[Bench]:
        del clock
        with testing(session, floods=floods, all_stamps=all_stamps) as limits, ExitStack() as stack:
            limits.tester.times_regular = times_regular
            own = limits.tester.taps = stack.enter_context(Taps(session)) if taps else None
            yield Matrix(limits, ClosedLoop(limits.tester, stack))
            if own is not None:
                repeat(limits.tester, own.means, own.trials)

    return Measure(opened, lambda folder, plan: whole_streams(folder, lacking_at_device(folder, plan)))


@contextmanager
def testing(session: Session, *, floods: bool, all_stamps: bool) -> Iterator[Limits]:
    """Start and qualify the ends of streams; their records are closed however the block ends."""
    with (
        watch_neighbours(session),
        Ends(session) as ends,
        session.site.bed.backend.without(session.cores.prober),
        ExitStack() as stack,
    ):
        number = next_block(session.part.folder, SEARCH_BLOCKS, CLOCK_BLOCKS)
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
    """Return the rate in frames per second; a share is one of the path's own throughput."""
    factors = trial.factors
    if factors.kind in CLOSED_LOOPS:
        return ROUND_TRIPS_PPS
    if factors.rate_share is None:
        return factors.rate_pps
    return factors.rate_share * limits.path_pps(trial.first_path, factors.frame_bytes, factors.engine)


def decided_load(limits: Limits, trial: Trial[Factors]) -> tuple[Link, float] | None:
    """Return link and rate of the background load; a bypass gets the same rate as the device."""
    factors, tester = trial.factors, limits.tester
    if not factors.load or tester.session.site.simulated:
        return None
    path = trial.first_path + BYPASS if factors.load_via == "beside" else trial.path
    pps = limits.path_pps(trial.first_path, tester.session.plan.stream.load_frame_bytes, "packet")
    return tester.link(path), factors.load * pps


def whole_streams(folder: RunFolder, lacking: Collection[tuple[int, int]] = ()) -> set[int]:
    """Return the planned trials that were kept and have records of both ends, without those that are `lacking`."""
    asked = read_table(folder.records, "blocks", columns=["block"]).frame  # of closed loops, by one end
    recorded = (recorded_streams(folder) | set(asked.select("part", "block").iter_rows())) - set(lacking)
    return {
        entry["trial"]
        for part, entry in in_parts(read_log(folder.log, {"started", STREAM_TRIAL}), STREAM_TRIAL)
        if entry["kept"] and entry["trial"] is not None and (part, entry["block"]) in recorded
    }


def recorded_streams(folder: RunFolder) -> set[tuple[int, int]]:
    """Return part and block of the streams with records of both ends."""
    rows = read_table(folder.records, "streams", columns=["block", "role", "purpose"]).frame
    rows = rows.filter(pl.col("purpose") != "load").select("part", "block", "role")
    sent, received = (set(rows.filter(role=role).select("part", "block").iter_rows()) for role in ("send", "receive"))
    return sent & received
