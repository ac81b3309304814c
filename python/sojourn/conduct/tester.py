"""One trial, from request to log entry: receivers first, then load and stream, frames in flight, interface counters.

A trial whose sender missed the requested load is repeated, not judged. Does not choose the next load.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sojourn.conduct import asking
from sojourn.conduct.asking import Asked, Engines
from sojourn.conduct.drops import located
from sojourn.conduct.turns import put_in_place
from sojourn.errors import MachineError, SojournError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from sojourn.bed.model import Link
    from sojourn.conduct.counters import Counters, Counts
    from sojourn.conduct.ends import Ends
    from sojourn.conduct.messages import Messages
    from sojourn.conduct.part import Session
    from sojourn.conduct.site import Site
    from sojourn.conduct.taps import Taps
    from sojourn.plan.trial import Trial
    from sojourn.plan.trials import Factors

MISSED = 0.005
"""The relative deviation from the requested load above which a sender's trial is not valid."""

LEAST_LATE_NS = {"p99": 1_000_000, "max": 5_000_000}
"""The lateness that p99 of the departures, or for trials of a search also the maximum, may have in any trial.

In long trials the limit is MISSED of their duration.
"""

PLAIN = Engines("packet", "packet")
ATTEMPTS = 3
EVEN = 0.25
"""with perfectly even delay the ratio would be 0.5"""

LOAD_LEAD_SECONDS = 0.1
"""The time for which the load runs alone before the stream begins."""

LOOK_SECONDS = 0.001
"""The polling interval for received frames, if the wait for late frames may end early."""

LOAD_POLL_SECONDS = 0.01
LOAD_PATIENCE_SECONDS = 10.0
"""The time limit for the load's first frame: on a busy machine it may be seconds late, beyond this it never leaves."""

Counted = tuple["Counts", int]
"""The counters of each interface, and the drops of all cores' backlogs."""

SIMULATED_FLOOD_PPS = 1e6
"""The maximum rate of a simulated sender, unless its line has a cost per frame (send_ns)."""

ANNOUNCED_FRAMES = 3
ANNOUNCED_PPS = 1000.0
KNOWN_SECONDS = 60.0
"""Addresses age out after 300 s unless a switch is configured otherwise (IEEE 802.1D)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt at a trial."""

    trial: Trial[Factors]
    sent: Sequence[dict[str, Any]]
    received: Sequence[dict[str, Any]]
    missed: bool
    rate_pps: float | None
    short: bool = False
    """Whether the sender was evenly too slow, without stalling: then this is a trial of the rate that it achieved."""

    @property
    def frames_due(self) -> int:
        """Frames of the requested load in the time that the sender took: more than it sent if it was too slow."""
        rate = self.rate_pps or 0.0
        return max(self.frames_sent, round(rate * self.seconds)) if self.short else self.frames_sent

    @property
    def frames_sent(self) -> int:
        """Frames sent by all senders."""
        return sum(flow["sent"] for flow in self.sent)

    @property
    def frames_received(self) -> int:
        """Frames that the measured receiver received, without duplicates."""
        return sum(flow["first"] for flow in self.received if flow["port"] == 0)

    @property
    def local_drops(self) -> int:
        """Frames that the receiver itself dropped."""
        return sum(flow["local_drops"] for flow in self.received if flow["port"] == 0)

    @property
    def lost(self) -> int:
        """Frames sent and never received, wherever they were dropped."""
        return max(0, self.frames_sent - self.frames_received)

    @property
    def loss_ratio(self) -> float:
        """Lost frames as a share of those sent; 1 if none was sent."""
        return self.lost / self.frames_sent if self.frames_sent else 1.0

    @property
    def seconds(self) -> float:
        """The time from the first departure to the last."""
        return span_seconds(self.sent)

    @property
    def sent_pps(self) -> float:
        """The rate of all senders together."""
        return self.frames_sent / self.seconds if self.seconds else 0.0

    @property
    def received_pps(self) -> float:
        """Frames of the measured receiver per time in which they were sent."""
        return self.frames_received / self.seconds if self.seconds else 0.0

    @property
    def carried_pps(self) -> float:
        """Frames that crossed the path, local drops included, per time that this took.

        The time is the longer of those from the first to the last frame sent and received: a queue drains after the
        sender has ended, which must not raise the rate.
        """
        took = max(self.seconds, span_seconds([flow for flow in self.received if flow["port"] == 0], "first"))
        return (self.frames_received + self.local_drops) / took if took else 0.0


@dataclass
class Tester:
    """The ends of a session, and the numbers of unplanned trials."""

    session: Session
    ends: Ends
    messages: Messages
    """The ends of streams that are messages over TCP."""
    counters: Counters
    next_block: int
    floods: bool
    """Whether the method needs high rates: then the fastest engines are chosen, and the zero-loss rate is measured."""
    all_stamps: bool
    """Whether all timestamps of a departure are taken (latency breakdown), and frames pass the sender's qdisc."""
    engines: Engines = PLAIN
    times_regular: bool = False
    """Whether planned streams with an interval use the plain engines, which timestamp every frame.

    The fastest receiver only counts frames. Streams at shares of a path's throughput use the fastest pair, which
    measured it.
    """
    taps: Taps | None = None
    """The taps at the ports of a trial's device, if the method needs them."""

    def number(self) -> int:
        """Return an unused block number."""
        self.next_block += 1
        return self.next_block - 1

    def asked(self, trial: Trial[Factors], rate_pps: float | None, load: tuple[Link, float] | None = None) -> Asked:
        """Return the request for a trial, with its link, engines and rate."""
        link = self.link(trial.path)
        engine, simulated = trial.factors.engine, self.session.site.simulated
        is_timed = self.times_regular and trial.purpose == "measure" and trial.factors.interval_ns is not None
        chosen = PLAIN if is_timed else self.engines
        engines = chosen if engine == "auto" or simulated else Engines(engine, engine)
        load_link, load_pps = load or (None, 0.0)
        site = self.session.site
        if site.simulated and trial.factors.schedule == "flood" and "send_ns" not in site.line(trial.path):
            rate_pps = SIMULATED_FLOOD_PPS
        pipe_ns = self.session.emulators.longest_ns(trial.path, trial.factors.pipe)
        return Asked(self.session.plan, trial, link, engines, rate_pps, load_link, load_pps, pipe_ns, self.all_stamps,
                     site.bed.backend.one_clock)  # fmt: skip

    def link(self, path: str) -> Link:
        """Return the link of a path, simulated or not."""
        return self.session.site.bed.topology.link(path)

    def measure(self, asked: Asked, *, attempts: int = ATTEMPTS, reached_pps: float = 0.0, **told: Any) -> Outcome:
        """Measure one trial, repeated if its sender missed the load; the last attempt is kept, and marked if it missed.

        A search accepts the rate of an evenly slower sender, unless the sender has reached that load before.
        """
        planned = asked.trial.block if asked.trial.purpose == "measure" else None
        for attempt in range(1, attempts + 1):
            outcome = self._attempt(asked, {"trial": planned, "attempt": attempt, **told}, last=attempt == attempts,
                                    reached_pps=reached_pps)  # fmt: skip
            if is_kept(outcome, reached_pps) or attempt == attempts:
                return outcome
            asked = replace(asked, trial=replace(asked.trial, block=self.number()))
        raise AssertionError("unreachable")

    def once(self, asked: Asked, **told: Any) -> Outcome:
        """Measure one trial without repetition, for tests of what the sender can do."""
        return self._attempt(asked, {"trial": None, "attempt": 1, **told}, last=True)

    def _attempt(self, asked: Asked, told: dict[str, Any], *, last: bool, reached_pps: float = 0.0) -> Outcome:
        site = self.session.site
        # A trial whose rate is a share of the tester's own has had that measured over the direct path meanwhile.
        put_in_place(self.session, asked.trial.path, is_under_way=True)
        said = self._simulate(asked, site) if site.simulated else self._over_wires(asked)
        missed = has_missed(asked, said["sent"])
        short = missed and is_short(said["sent"])
        outcome = Outcome(asked.trial, said["sent"], said["received"], missed, asked.rate_pps, short)
        self.session.log(
            "stream-trial",
            **asking.head(asked.trial),
            link=asking.link_number(asked.trial),
            factors=factors(asked),
            **told,
            missed=missed,
            kept=last or is_kept(outcome, reached_pps),
            engines=asked.engines._asdict(),
            **said,
        )
        return outcome

    def _simulate(self, asked: Asked, site: Site) -> dict[str, Any]:
        line = site.line(asked.trial.path)
        line["seed"] = (line.get("seed", 0) + asked.trial.seed) % 2**62  # else all trials have the same chance
        answer = self.ends["sim"].simulate(asking.simulating(asked, line), self.session.screen.tick)
        counted: dict[str, Any] = {
            "counters": {},
            "drops": {},
            "softnet_dropped": 0,
            "load": None,
            "answers": None,
            "clock": answer.get("clock"),
        }
        return {"sent": answer["sent"], "received": answer["received"], **counted}

    def _over_wires(self, asked: Asked) -> dict[str, Any]:
        self.announce(asked)
        is_tcp = asked.engines.send == "tcp"
        with (
            self.emulated(asked),
            self.taps.during(asked) if self.taps else nullcontext(),
            self.loaded(asked) as load,
            self.messages.receiving(asked) if is_tcp else self._receiving(asked) as received,
        ):
            before = self.counted(asked)
            sent = self.messages.send(asked) if is_tcp else self._send(asked)
            self.session.emulators.wait_until_empty(asked.trial.path, asked.trial.factors.pipe)
            self._wait_for_late(asked, sent, before)
            after = self.counted(asked)
            received["sent"] = sent
        counted = added(before, after)
        counted["drops"] = located(asked.link, counted["counters"])
        ways = {"sent": sent["flows"], "received": received["b"]["flows"]}
        answers = received["a2"]["flows"] if "a2" in received else sent.get("answers")
        return ways | {"answers": answers, "load": load or None, "clock": sent.get("clock"), **counted}

    def _wait_for_late(self, asked: Asked, sent: dict[str, Any], before: Counted) -> None:
        """Wait for late frames: for the grace period, or until none is in flight if the plan allows this to end it."""
        end = time.monotonic() + asked.plan.trials.grace_ns / 1e9
        if not tells_when_accounted(asked):
            time.sleep(asked.plan.trials.grace_ns / 1e9)
            return
        due, seen = sum(flow["sent"] for flow in sent["flows"]), -1
        while (left := end - time.monotonic()) > 0:
            arrived = self.ends["b"].arrived(asked.trial.block)
            # A frame of another source may be among the dropped: check that none of ours arrived meanwhile.
            if arrived >= due or (arrived == seen and arrived + self._dropped(asked, before) >= due):
                return
            seen = arrived
            time.sleep(min(LOOK_SECONDS, left))

    def _dropped(self, asked: Asked, before: Counted) -> int:
        """Return the drops of the path's ports since `before`; 0 for shaped beds, where reading takes too long."""
        if asked.plan.bed.rate_bps is not None:
            return 0
        ports = located(asked.link, added(before, self.counted(asked))["counters"])
        for dev in ports.keys() & refusing(asked):
            del ports[dev]["ring"]
        return sum(sum(places.values()) for places in ports.values())

    def _send(self, asked: Asked) -> dict[str, Any]:
        self.ends["a"].send(asking.sending(asked))
        return self.ends["a"].sent(self.session.screen.tick)

    def emulated(self, asked: Asked) -> AbstractContextManager[None]:
        """Configure the emulators of the trial's path, which count for it within the block."""
        trial = asked.trial
        return self.session.emulators.during(trial.path, trial.block, trial.factors.pipe)

    def counted(self, asked: Asked) -> Counted:
        """Return the present counters of the interfaces of the trial's path, and of its load's."""
        links = [link for link in (asked.link, asked.load_link) if link is not None]
        return self.counters.read(*links), self.session.site.bed.backend.softnet_dropped()

    @contextmanager
    def _receiving(self, asked: Asked) -> Iterator[dict[str, Any]]:
        """Receive at the B side, and answers at the A side too; the yielded dictionary has the results afterwards."""
        requests = {"b": asking.receiving(asked)}
        if asked.answering and not asking.own_answers(asked):
            requests["a2"] = asking.answers_receiving(asked)
        said: dict[str, Any] = {}
        begun: list[str] = []
        try:
            for name, request in requests.items():
                self.ends[name].receive(request)
                begun.append(name)
            yield said
            totals = [total(flow) for flow in said["sent"]["flows"]]
            while begun:
                name = begun.pop()
                said[name] = self.ends[name].finish_receiving(asked.trial.block, totals, self.session.screen.tick)
        except SojournError:
            for name in begun:
                with suppress(SojournError):
                    self.ends[name].finish_receiving(asked.trial.block, [], self.session.screen.tick)
            raise

    @contextmanager
    def loaded(self, asked: Asked) -> Iterator[dict[str, Any]]:
        """Send the background load within the block, if the trial has one; its result is in the yielded dictionary."""
        said: dict[str, Any] = {}
        if not asked.load_pps:
            yield said
            return
        tick = self.session.screen.tick
        self.ends["b2"].receive(asking.load_receiving(asked))
        before = self._load_frames(asked)
        self.ends["a3"].send(asking.load_sending(asked))
        try:
            self._await_load(asked, before)
            time.sleep(LOAD_LEAD_SECONDS)
            yield said
        finally:
            self.ends["a3"].stop()
            said["sent"] = self.ends["a3"].sent(tick)["flows"]
            time.sleep(asked.plan.trials.grace_ns / 1e9)
            totals = [total(flow) for flow in said["sent"]]
            said["received"] = self.ends["b2"].finish_receiving(asked.trial.block, totals, tick)["flows"]

    def _await_load(self, asked: Asked, before: int) -> None:
        """Wait until the load's first frame has left: otherwise the trial would have no load."""
        deadline = time.monotonic() + LOAD_PATIENCE_SECONDS
        while self._load_frames(asked) <= before:
            if time.monotonic() > deadline:
                dev = asking.load_ports(asked)[0].dev
                raise MachineError(f"the background load does not begin: {dev} sends nothing: see `sojourn doctor`")
            time.sleep(LOAD_POLL_SECONDS)

    def _load_frames(self, asked: Asked) -> int:
        """Return the frames that the load's port has sent so far."""
        near, _ = asking.load_ports(asked)
        return self.counters.read(asked.load_link or asked.link)[near.dev]["tx_packets"]

    def flush_fdb(self, path: str) -> None:
        """Flush the FDB of a path's bridges; they learn the receivers' addresses again before its next trial."""
        self.session.site.bed.flush_fdb(path)
        self.session.learned.pop(path, None)

    def announce(self, asked: Asked) -> None:
        """Have every receiver of a path send once, so that a bridge learns its address; done once in a run.

        In a device that Sojourn does not build it may age out: there they send again from time to time.
        """
        for link in (asked.link, asked.load_link):
            if link is None or self.session.site.simulated or self._is_known(link):
                continue
            flows = [announcement(link, number) for number in range(len(link.far))]
            own = {
                "keep": "histograms",
                "stamps": "none",
                "clock": asking.untimed_clock(asked),
                "start_in_ns": asking.START_IN_NS,
            }
            place = {"block": self.number(), "device": link.path, "round": 0, "visit": 0, "cell": 0}
            self.ends["b"].send(place | {"purpose": "warm-up", "flows": flows, **own})
            sent = self.ends["b"].sent(self.session.screen.tick)
            self.session.learned[link.path] = time.monotonic()
            if any(flow["sent"] == 0 for flow in sent["flows"]):
                raise MachineError(f"nothing can be sent over {link.path}: see `sojourn doctor`")

    def _is_known(self, link: Link) -> bool:
        """Return whether a device still knows the addresses of the receivers."""
        told = self.session.learned.get(link.path)
        return told is not None and (not link.device.mode.is_outside or time.monotonic() - told < KNOWN_SECONDS)


def tells_when_accounted(asked: Asked) -> bool:
    """Return whether the wait for late frames may end early, because the receiver counts the frames that arrived."""
    may_end = asked.plan.trials.grace_ends == "accounted"
    is_one_way = not asked.answering  # an answer may be in flight when all requests have arrived
    return may_end and is_one_way and asked.engines.send != "tcp" and len(asked.far) == 1 and not asked.load_pps


def refusing(asked: Asked) -> set[str]:
    """Return the ports whose full ring refuses a frame to the sender, which does not count it as sent.

    Each retry increments the drop counter again. Only frames of the live engine into a device count as sent even so.
    """
    if asked.engines.send == "live" and asked.link.stations:
        return set()
    own = {port.dev for port in asked.near}
    return {cable.right.dev for cable in (*asked.link.cables, *asked.link.further_cables) if cable.left.dev in own}


def total(flow: dict[str, Any]) -> dict[str, Any]:
    """Return what a receiver must know of a flow that was sent."""
    return {"flow": flow["flow"], "sent": flow["sent"], "next": flow["next"], "port": None}


def announcement(link: Link, number: int) -> dict[str, Any]:
    """Return the flow of a few frames from one B-side end to the first A-side end."""
    there = {"via": "packet", "dev": link.far[number].dev, "mac": link.a_mac, "vlan": None, "pcp": None}
    pace = {"schedule": "regular", "rate_pps": ANNOUNCED_PPS, "count": ANNOUNCED_FRAMES}
    return {"flow": number + 1, "to": there | {"qdisc_bypass": True}, **pace, "payload_bytes": 46, "seed": 1}


def factors(asked: Asked) -> dict[str, Any]:
    """Return the trial's factors, with the decided rate."""
    named = asked.trial.factors
    return {name: getattr(named, name) for name in named.__slots__} | {
        "offered_pps": asked.rate_pps,
        "load_pps": asked.load_pps,
        "duration_ns": asked.trial.duration_ns,
    }


def added(before: Counted, after: Counted) -> dict[str, Any]:
    """Return the increase of the counters of interfaces and backlogs."""
    devices = {
        dev: {name: count - before[0][dev][name] for name, count in counts.items()} for dev, counts in after[0].items()
    }
    return {"counters": devices, "softnet_dropped": after[1] - before[1]}


def has_missed(asked: Asked, sent: Sequence[dict[str, Any]]) -> bool:
    """Return whether any sender omitted frames, had another rate than requested, or stalled and caught up."""
    if asked.is_flood:
        return False
    quantiles = ("p99", "max") if asked.trial.purpose == "search" else ("p99",)
    return any(
        missed_by(flow) > MISSED or any(is_late(flow, quantile, asked.trial.duration_ns) for quantile in quantiles)
        for flow in sent
    )


def is_kept(outcome: Outcome, reached_pps: float) -> bool:
    """Return whether a trial needs no further attempt; a sender slower than before was disturbed."""
    is_limit = outcome.short and (outcome.rate_pps or 0.0) > reached_pps
    return not outcome.missed or (is_limit and outcome.trial.purpose == "search")


def is_short(sent: Sequence[dict[str, Any]]) -> bool:
    """Return whether all senders ran without a stall but too slowly: the lateness of each grew evenly, if known."""
    intended, achieved = (sum(flow[name] or 0.0 for flow in sent) for name in ("intended_pps", "achieved_pps"))
    return 0 < achieved < (1 - MISSED) * intended and all(fell_behind_evenly(flow) for flow in sent)


def fell_behind_evenly(flow: dict[str, Any]) -> bool:
    """Return whether the median lateness is a good part of the maximum; the live engine does not report it."""
    late = flow.get("pacing_error_ns") or {}
    return not late.get("max") or late.get("p50", 0) >= EVEN * late["max"]


def missed_by(flow: dict[str, Any]) -> float:
    """Return the relative deviation of one sender from its load."""
    left_out = 1 - flow["sent"] / flow["asked"] if flow["asked"] else 0.0
    intended, achieved = flow["intended_pps"], flow["achieved_pps"]
    off = abs(achieved / intended - 1) if intended and achieved else 0.0
    return max(left_out, off)


def is_late(flow: dict[str, Any], quantile: str, duration_ns: int) -> bool:
    """Return whether a sender stalled: it then catches up by a burst, which is not the requested stream."""
    late_ns = (flow.get("pacing_error_ns") or {}).get(quantile) or 0
    return bool(late_ns > max(LEAST_LATE_NS[quantile], MISSED * duration_ns))


def span_seconds(flows: Sequence[dict[str, Any]], counted: str = "sent") -> float:
    """Return the time from the first frame of any flow to the last, plus one interval: rates count all frames."""
    first: list[int] = [flow["first_ns"] for flow in flows if flow.get("first_ns") is not None]
    last: list[int] = [flow["last_ns"] for flow in flows if flow.get("last_ns") is not None]
    frames: int = sum(flow[counted] for flow in flows)
    if not first or frames < 2:
        return 0.0
    return (max(last) - min(first)) / 1e9 * frames / (frames - 1)
