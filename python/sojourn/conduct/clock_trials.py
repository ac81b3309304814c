"""Clock trials: short streams between trials, which tell how the clocks of hosts A and B differ where these have two.

They are for plans whose trials make no exchanges of their own (`plan/clock_trials.py`): one over the direct path before
the first batch of a session, one behind each batch, and further ones within a long batch. They are in no figure and
take nothing of the plan's time. What they tell is in `clock_lines` and `exchanges`: of TCP `analysis/host_clock.py`
reads it, of streams over emulators `analysis/lent_lines.py`.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn.conduct.asking import START_IN_NS
from sojourn.conduct.remaining import next_block
from sojourn.conduct.tester import total
from sojourn.conduct.turns import put_in_place
from sojourn.instruments import StreamInstrument
from sojourn.instruments.conversation import place_options
from sojourn.instruments.stream import serve_argv
from sojourn.plan.clock_trials import APART_SECONDS, needs_clock_trials
from sojourn.plan.types import DIRECT
from sojourn.records.clock_trials import CLOCK_BLOCKS, CLOCK_TRIAL, PURPOSE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.bed.hosts import HostName
    from sojourn.bed.model import Link
    from sojourn.conduct.part import Session

FRAMES, PPS = 3, 1000.0
"""Of the stream itself, which is short: its purpose is the exchanges before and behind it, 0.8 s in all."""

PAYLOAD_BYTES = 46
LATE_AFTER_NS = 100_000_000


class ClockTrials:
    """Makes no clock trial: for plans that need none, and hosts that have one clock."""

    def now(self) -> None:
        """Make a clock trial."""

    def if_due(self) -> None:
        """Make a clock trial if the last one is longer ago than the method allows."""


@contextmanager
def clock_trials(session: Session) -> Iterator[ClockTrials]:
    """Start the two programs that make the clock trials of a session, and end them with it."""
    site = session.site
    if site.simulated or site.bed.backend.one_clock or not needs_clock_trials(session.plan):
        yield ClockTrials()
        return
    with ExitStack() as stack:
        near, far = (_end(session, stack, host) for host in ("a", "b"))
        number = next_block(session.part.folder, CLOCK_BLOCKS)
        asked_s = session.plan.ask.clock_trials_apart_s
        yield _Between(session, near, far, number, APART_SECONDS if asked_s is None else asked_s)


@dataclass(slots=True)
class _Between(ClockTrials):
    """The clock trials between two hosts with two clocks; `block` is the number of the next one."""

    session: Session
    near: StreamInstrument
    far: StreamInstrument
    block: int
    apart_s: float
    _last: float = -math.inf

    def now(self) -> None:
        with self.session.clock.paused():
            put_in_place(self.session, DIRECT)
            _exchange(self.session, self.session.site.bed.topology.link(DIRECT), self.block, self.near, self.far)
        self.block += 1
        self._last = time.monotonic()

    def if_due(self) -> None:
        if time.monotonic() > self._last + self.apart_s:
            self.now()


def _end(session: Session, stack: ExitStack, host: HostName) -> StreamInstrument:
    """Start the program at one end; it sleeps between clock trials."""
    argv = serve_argv(session.instrument, session.records(host), session.part.number, f"{host}clock",
                      place_options(None, "sleep", fifo=False))  # fmt: skip
    end = StreamInstrument(session.site.start(host), argv)
    stack.callback(end.kill)
    stack.callback(end.finish, at_once=True)  # nothing is under way, or it is abandoned
    return end


def _exchange(session: Session, link: Link, block: int, near: StreamInstrument, far: StreamInstrument) -> None:
    """Make one clock trial, and log the sender's estimate of the two clocks."""
    tick = session.screen.tick
    near_end, far_end = link.near[0], link.far[0]
    head = {"block": block, "device": link.path, "round": 0, "visit": 0, "cell": 0, "purpose": PURPOSE}
    port = {"port": 0, "via": "packet", "dev": far_end.dev, "groups": [], "answer": None}
    to = {"via": "packet", "dev": near_end.dev, "mac": far_end.mac, "vlan": None, "pcp": None, "qdisc_bypass": True}
    flow = {"flow": 1, "to": to, "schedule": "regular", "rate_pps": PPS, "count": FRAMES,
            "payload_bytes": PAYLOAD_BYTES, "seed": 1}  # fmt: skip
    far.receive(head | {"ports": [port], "flows": [1], "keep": "packets", "room": FRAMES,
                        "late_after_ns": LATE_AFTER_NS, "payload_bytes": PAYLOAD_BYTES})  # fmt: skip
    near.send(head | {"flows": [flow], "keep": "packets", "stamps": "departure", "clock": "exchange",
                      "start_in_ns": START_IN_NS})  # fmt: skip
    sent = near.sent(tick)
    far.finish_receiving(block, [total(one) for one in sent["flows"]], tick)
    session.log(CLOCK_TRIAL, part=session.part.number, block=block, clock=sent.get("clock"))
