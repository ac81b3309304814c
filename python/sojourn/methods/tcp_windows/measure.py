"""Method "tcp-windows": the baseline of a path, then transfers whose receivers offer multiples of its product.

The window of a trial is calculated from the prober's own summary of the round's baseline; the analysis computes its
figures from the records, and from the windows that TCP had.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.bed.hosts import END_HOSTS
from sojourn.conduct.bench import Bench, Measure
from sojourn.conduct.blocks import open_prober, probed_blocks, request
from sojourn.conduct.connections import connections_read, port_of, start_anywhere
from sojourn.conduct.part import without_event
from sojourn.conduct.tcp_hosts import NOT_SENT_BYTES, prepare_links
from sojourn.errors import DoubtfulError
from sojourn.instruments.blocks import longest_seconds
from sojourn.instruments.tcp import DRAIN_SECONDS
from sojourn.methods.tcp_windows.ask import RATE, RTT, TRANSFER, lasts_ns
from sojourn.records.log import read_log
from sojourn.records.lost import still_lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.bench import Clock
    from sojourn.conduct.part import Session
    from sojourn.instruments import BlocksInstrument
    from sojourn.instruments.tcp import TcpInstrument
    from sojourn.methods.tcp_windows.ask import Windowed, WindowsPlan
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

TIMESTAMPS_BYTES = 12
"""The size of TCP's options in each segment, as Linux sets them by default."""

FCS_BYTES = 4
ACKNOWLEDGED_SEGMENTS = 2
"""A receiver acknowledges every second segment (RFC 5681): the last of an odd number would wait for its timer."""


@dataclass(frozen=True, slots=True)
class Transfers(Bench):
    """The prober, the applications of both hosts, and the last baseline of each path."""

    session: Session
    asked: WindowsPlan
    prober: BlocksInstrument
    ends: dict[HostName, TcpInstrument]
    found: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """By path, pipe and kind of baseline: round-trip time in ns, or frame bits per second."""

    def measure(self, trial: Trial[Any]) -> None:
        """Measure one trial: only probes for a baseline, otherwise probes during a transfer."""
        session, factors = self.session, trial.factors
        probes = request(session.plan, session.site, trial)
        told: dict[str, Any] = {}
        with session.emulators.during(trial.path, trial.block, factors.pipe):
            self.prober.ask(probes)
            if factors.what == TRANSFER:
                told = self._transfer(trial)
            answer = self.prober.answer(longest_seconds(probes), session.screen.tick)
        session.log("block", device=trial.device, **without_event(answer))
        session.log("window-trial", block=trial.block, cell=trial.cell, device=trial.device, round=trial.round,
                    factors=asdict(factors), **told)  # fmt: skip
        if factors.what != TRANSFER:
            self.found[trial.device, factors.pipe, factors.what] = baseline_of(factors, answer)
        time.sleep(self.asked.pause_ns / 1e9)

    def _transfer(self, trial: Trial[Any]) -> dict[str, Any]:
        """Send from A to B with the trial's window; return that window and the result of each connection."""
        near, far, factors, own = self.ends["a"], self.ends["b"], trial.factors, self.asked
        link = self.session.site.bed.topology.paths[trial.path]
        window = self.window_of(trial)
        lasts = lasts_ns(self.session.plan, factors)
        settings = {"mss_bytes": own.mss_bytes}
        far.listen(trial.block, port_of(trial), factors.connections, settings | {"window_bytes": window})
        wanted = {"connections": factors.connections, "duration_ns": lasts, "read_every_ns": own.read_every_ns}
        asked = {"block": trial.block, "to": f"{link.b_ip4}:{port_of(trial)}",
                 "settings": settings | {"congestion": own.congestion}} | wanted  # fmt: skip
        sent = near.send(asked, lasts / 1e9 + DRAIN_SECONDS, self.session.screen.tick)["connections"]
        received = far.finish_listening(trial.block)["connections"]
        if broken := [one["problem"] for one in (*sent, *received) if one["problem"]]:
            raise DoubtfulError(f"a connection of trial {trial.block} broke: {broken[0]}")
        return {"window_bytes": window, "connections": sent}

    def window_of(self, trial: Trial[Any]) -> int:
        """Return the window of each connection of a trial in pairs of segments, from the path's last baseline."""
        factors: Windowed = trial.factors
        rtt, rate = (self.found[trial.device, factors.pipe, what] for what in (RTT, RATE))
        return window_bytes(factors, rtt * rate / 8e9, self.asked.mss_bytes - TIMESTAMPS_BYTES)


def window_bytes(factors: Windowed, product_bytes: float, segment_bytes: int) -> int:
    """Return a connection's part of the window, as an even number of segments."""
    step = ACKNOWLEDGED_SEGMENTS * segment_bytes
    return max(1, round(factors.window * product_bytes / factors.connections / step)) * step


def baseline_of(factors: Windowed, answer: dict[str, Any]) -> float:
    """Return the mean round trip in ns, or the bit rate at which a train's frames, without FCS, returned."""
    if factors.what != RATE:
        if not answer["rtt"]:
            raise DoubtfulError(f"no probe of block {answer['block']} was answered: the path has no baseline")
        return float(answer["rtt"]["mean_ns"])
    first, last = answer["first_arrival_ns"], answer["last_arrival_ns"]
    if not first or last <= first:
        raise DoubtfulError(f"no train of block {answer['block']} came back: the path has no baseline")
    received: int = answer["received"]
    return (received - 1) * (factors.response_frame_bytes - FCS_BYTES) * 8e9 / float(last - first)


@contextmanager
def open_transfers(session: Session, clock: Clock) -> Iterator[Bench]:
    """Yield the bench with the applications of both hosts, and the prober."""
    del clock
    asked = session.plan.windows
    prepare_links(session, asked, tcp_notsent_lowat=str(NOT_SENT_BYTES))
    with ExitStack() as stack:
        ends = {host: start_anywhere(session, host, stack, host) for host in END_HOSTS}
        yield Transfers(session, asked, stack.enter_context(open_prober(session)), ends)


def whole_trials(folder: RunFolder, plan: Plan) -> set[int]:
    """Return the trials of rounds in which every trial over the path is recorded, and none is lost.

    An incomplete round is measured again with its baseline and all its transfers, as another bed has another baseline.
    """
    log, probed, ends = read_log(folder.log), probed_blocks(folder), connections_read(folder)
    told = {one["block"] for one in log if one.get("event") == "window-trial"}
    there = (probed & told) - {one.block for one in still_lost(log)}
    trials = plan.expand()
    owed = {
        (one.device, one.round)
        for one in trials
        if one.block not in there
        or min(ends[one.block, "a", "send"], ends[one.block, "b", "receive"]) < one.factors.connections
    }
    return {one.block for one in trials if (one.device, one.round) not in owed}


MEASURE = Measure(open_transfers, whole_trials)
