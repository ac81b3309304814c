"""One trial from its question to its log entry: receivers first, then the load, the stream, what is still on its way,
and what the interfaces counted meanwhile.

A trial whose sender missed the load that was asked is repeated, not judged. Does not choose what is tried next.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sojourn.conduct import asking
from sojourn.conduct.asking import Asked, Engines
from sojourn.conduct.drops import located
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
"""A sender that is further than this from the load that was asked has not made the trial that was meant."""

LEAST_LATE_NS = {"p99": 1_000_000, "max": 5_000_000}
"""One frame in a hundred may leave so late in the shortest of trials, and where a loss decides, any; in longer ones, by
MISSED of their time."""

PLAIN = Engines("packet", "packet")
ATTEMPTS = 3
EVEN = 0.25
"""Evenly, it would be a half."""

LOAD_LEAD_SECONDS = 0.1
"""The load runs alone for this long before a foreground begins."""

LOOK_SECONDS = 0.001
"""Between two looks at what has arrived, where the wait for late frames may end early."""

LOAD_POLL_SECONDS = 0.01
LOAD_PATIENCE_SECONDS = 10.0
"""On a busy machine a load's first frame may leave long after it was asked for; one that takes longer never leaves."""

Counted = tuple["Counts", int]
"""Of each interface; and frames that found a core's backlog full."""

SIMULATED_FLOOD_PPS = 1e6
"""A simulated sender has no "as fast as it goes", unless its line says what one frame costs it (send_ns)."""

ANNOUNCED_FRAMES = 3
ANNOUNCED_PPS = 1000.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt at a trial came to."""

    trial: Trial[Factors]
    sent: Sequence[dict[str, Any]]
    received: Sequence[dict[str, Any]]
    missed: bool
    rate_pps: float | None
    short: bool = False
    """Whether the sender was evenly slower than asked, without standing still: a trial of the load that it made."""

    @property
    def frames_due(self) -> int:
        """Frames of the asked load in the time that the sender took: more than it sent where it fell short."""
        rate = self.rate_pps or 0.0
        return max(self.frames_sent, round(rate * self.seconds)) if self.short else self.frames_sent

    @property
    def frames_sent(self) -> int:
        """By all senders."""
        return sum(flow["sent"] for flow in self.sent)

    @property
    def frames_received(self) -> int:
        """For the first time, by the receiver that is measured."""
        return sum(flow["first"] for flow in self.received if flow["port"] == 0)

    @property
    def local_drops(self) -> int:
        """What the receiver itself dropped."""
        return sum(flow["local_drops"] for flow in self.received if flow["port"] == 0)

    @property
    def lost(self) -> int:
        """Sent and never received, whoever dropped it."""
        return max(0, self.frames_sent - self.frames_received)

    @property
    def loss_ratio(self) -> float:
        """Of what was sent; 1 where nothing was."""
        return self.lost / self.frames_sent if self.frames_sent else 1.0

    @property
    def seconds(self) -> float:
        """From the first departure to the last."""
        return span_seconds(self.sent)

    @property
    def sent_pps(self) -> float:
        """All senders together."""
        return self.frames_sent / self.seconds if self.seconds else 0.0

    @property
    def received_pps(self) -> float:
        """Frames of the measured receiver over the time in which they were sent."""
        return self.frames_received / self.seconds if self.seconds else 0.0

    @property
    def carried_pps(self) -> float:
        """Frames that came through, those that the receiver itself dropped too, over the time that they took.

        Of the times from the first to the last, sent and arrived, the longer: a queue lets out what it holds when the
        sender has ended, and that is no rate of the path.
        """
        took = max(self.seconds, span_seconds([flow for flow in self.received if flow["port"] == 0], "first"))
        return (self.frames_received + self.local_drops) / took if took else 0.0


@dataclass
class Tester:
    """The ends of a session, and the numbers of the trials that nobody planned."""

    session: Session
    ends: Ends
    messages: Messages
    """The ends of streams that are messages over TCP."""
    counters: Counters
    next_block: int
    floods: bool
    """Whether the method needs speed: the engines that move most are chosen, and the tester's zero-loss rate found."""
    all_stamps: bool
    """Whether all timestamps of a departure are taken (the latency breakdown), and frames pass the sender's queue."""
    engines: Engines = PLAIN
    times_regular: bool = False
    """Whether planned streams with an interval use the plain engines, which timestamp every frame: the fastest receiver
    only counts frames. Shares of a path's throughput are of the fastest pair, and are sent by it."""
    taps: Taps | None = None
    """What captures at the ports of a trial's device, where the method asks for that."""
    _learned: set[str] = field(default_factory=set)

    def number(self) -> int:
        """A block's number that nobody has."""
        self.next_block += 1
        return self.next_block - 1

    def asked(self, trial: Trial[Factors], rate_pps: float | None, load: tuple[Link, float] | None = None) -> Asked:
        """A trial with its link, its engines and its rate decided."""
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
        """The link of a path, simulated or not."""
        return self.session.site.bed.topology.link(path)

    def measure(self, asked: Asked, *, attempts: int = ATTEMPTS, reached_pps: float = 0.0, **told: Any) -> Outcome:
        """One trial, tried again where its sender missed the load; the last attempt is kept, and marked if it did.

        A search takes what an evenly slower sender made for what it is, unless it has reached as much before.
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
        """One trial, whatever its sender made of it: where the question is what the sender can do."""
        return self._attempt(asked, {"trial": None, "attempt": 1, **told}, last=True)

    def _attempt(self, asked: Asked, told: dict[str, Any], *, last: bool, reached_pps: float = 0.0) -> Outcome:
        site = self.session.site
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
        line["seed"] = (line.get("seed", 0) + asked.trial.seed) % 2**62  # the same chance in each trial were no chance
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
        """Wait for late frames: the grace period, or until none is under way where the plan lets that end it."""
        end = time.monotonic() + asked.plan.trials.grace_ns / 1e9
        if not tells_when_accounted(asked):
            time.sleep(asked.plan.trials.grace_ns / 1e9)
            return
        due, seen = sum(flow["sent"] for flow in sent["flows"]), -1
        while (left := end - time.monotonic()) > 0:
            arrived = self.ends["b"].arrived(asked.trial.block)
            # Another's frame may be among the dropped: none of ours has come meanwhile.
            if arrived >= due or (arrived == seen and arrived + self._dropped(asked, before) >= due):
                return
            seen = arrived
            time.sleep(min(LOOK_SECONDS, left))

    def _dropped(self, asked: Asked, before: Counted) -> int:
        """Frames of the sent that the path's ports have dropped since `before`; 0 where a look takes too long."""
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
        """The emulators of the trial's path set for it, and counting for it."""
        trial = asked.trial
        return self.session.emulators.during(trial.path, trial.block, trial.factors.pipe)

    def counted(self, asked: Asked) -> Counted:
        """What the interfaces of the trial's path, and of its load's, have counted so far."""
        links = [link for link in (asked.link, asked.load_link) if link is not None]
        return self.counters.read(*links), self.session.site.bed.backend.softnet_dropped()

    @contextmanager
    def _receiving(self, asked: Asked) -> Iterator[dict[str, Any]]:
        """Receivers at the far ends, and for answers one at the near end; their answers are there afterwards."""
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
        """A background load meanwhile, where one is asked; what came of it is there afterwards."""
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
        """Wait until the load's first frame has left: without it, the trial would be one without a load."""
        deadline = time.monotonic() + LOAD_PATIENCE_SECONDS
        while self._load_frames(asked) <= before:
            if time.monotonic() > deadline:
                dev = asking.load_ports(asked)[0].dev
                raise MachineError(f"the background load does not begin: {dev} sends nothing: see `sojourn doctor`")
            time.sleep(LOAD_POLL_SECONDS)

    def _load_frames(self, asked: Asked) -> int:
        """What the port that the load leaves by has sent so far."""
        near, _ = asking.load_ports(asked)
        return self.counters.read(asked.load_link or asked.link)[near.dev]["tx_packets"]

    def flush_fdb(self, path: str) -> None:
        """Flush the FDB of a path's bridges; before its next trial they learn the receivers' addresses again."""
        self.session.site.bed.flush_fdb(path)
        self._learned.discard(path)

    def announce(self, asked: Asked) -> None:
        """Let every receiver of a path send once, so that a bridge has learned its address; done once in a run."""
        for link in (asked.link, asked.load_link):
            if link is None or link.path in self._learned or self.session.site.simulated:
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
            self._learned.add(link.path)
            if any(flow["sent"] == 0 for flow in sent["flows"]):
                raise MachineError(f"nothing can be sent over {link.path}: see `sojourn doctor`")


def tells_when_accounted(asked: Asked) -> bool:
    """Whether the wait for late frames may end before its time, and its receiver tells how many frames have arrived."""
    may_end = asked.plan.trials.grace_ends == "accounted"
    is_one_way = not asked.answering  # an answer may be under way when each request has arrived
    return may_end and is_one_way and asked.engines.send != "tcp" and len(asked.far) == 1 and not asked.load_pps


def refusing(asked: Asked) -> set[str]:
    """The ports whose full ring refuses the sender a frame, which then is not among the sent.

    Each attempt to send it again drops one more. Only live frames into a device count as sent all the same.
    """
    if asked.engines.send == "live" and asked.link.stations:
        return set()
    own = {port.dev for port in asked.near}
    return {cable.right.dev for cable in (*asked.link.cables, *asked.link.further_cables) if cable.left.dev in own}


def total(flow: dict[str, Any]) -> dict[str, Any]:
    """What a receiver gets to know of a flow that was sent."""
    return {"flow": flow["flow"], "sent": flow["sent"], "next": flow["next"], "port": None}


def announcement(link: Link, number: int) -> dict[str, Any]:
    """A few frames from one far end to the first near one."""
    there = {"via": "packet", "dev": link.far[number].dev, "mac": link.a_mac, "vlan": None, "pcp": None}
    pace = {"schedule": "regular", "rate_pps": ANNOUNCED_PPS, "count": ANNOUNCED_FRAMES}
    return {"flow": number + 1, "to": there | {"qdisc_bypass": True}, **pace, "payload_bytes": 46, "seed": 1}


def factors(asked: Asked) -> dict[str, Any]:
    """The trial's factors, with the rate that was decided."""
    named = asked.trial.factors
    return {name: getattr(named, name) for name in named.__slots__} | {
        "offered_pps": asked.rate_pps,
        "load_pps": asked.load_pps,
        "duration_ns": asked.trial.duration_ns,
    }


def added(before: Counted, after: Counted) -> dict[str, Any]:
    """What the interfaces and the cores' backlogs counted between two looks."""
    devices = {
        dev: {name: count - before[0][dev][name] for name, count in counts.items()} for dev, counts in after[0].items()
    }
    return {"counters": devices, "softnet_dropped": after[1] - before[1]}


def has_missed(asked: Asked, sent: Sequence[dict[str, Any]]) -> bool:
    """Whether any sender left frames out, was faster or slower than it was to be, or stood still and caught up."""
    if asked.is_flood:
        return False
    quantiles = ("p99", "max") if asked.trial.purpose == "search" else ("p99",)
    return any(
        missed_by(flow) > MISSED or any(is_late(flow, quantile, asked.trial.duration_ns) for quantile in quantiles)
        for flow in sent
    )


def is_kept(outcome: Outcome, reached_pps: float) -> bool:
    """Whether a trial needs no further attempt; a sender that is slower than it was before met with an accident."""
    is_limit = outcome.short and (outcome.rate_pps or 0.0) > reached_pps
    return not outcome.missed or (is_limit and outcome.trial.purpose == "search")


def is_short(sent: Sequence[dict[str, Any]]) -> bool:
    """Whether all senders kept going and were too slow: what each was behind by then grew evenly, if that is known."""
    intended, achieved = (sum(flow[name] or 0.0 for flow in sent) for name in ("intended_pps", "achieved_pps"))
    return 0 < achieved < (1 - MISSED) * intended and all(fell_behind_evenly(flow) for flow in sent)


def fell_behind_evenly(flow: dict[str, Any]) -> bool:
    """Whether the middle frame was late by a good part of what the last was; live frames do not tell."""
    late = flow.get("pacing_error_ns") or {}
    return not late.get("max") or late.get("p50", 0) >= EVEN * late["max"]


def missed_by(flow: dict[str, Any]) -> float:
    """How far one sender was from its load, as a share of it."""
    left_out = 1 - flow["sent"] / flow["asked"] if flow["asked"] else 0.0
    intended, achieved = flow["intended_pps"], flow["achieved_pps"]
    off = abs(achieved / intended - 1) if intended and achieved else 0.0
    return max(left_out, off)


def is_late(flow: dict[str, Any], quantile: str, duration_ns: int) -> bool:
    """Whether a sender stood still: what it then catches up with is a burst, and not the stream that was asked."""
    late_ns = (flow.get("pacing_error_ns") or {}).get(quantile) or 0
    return bool(late_ns > max(LEAST_LATE_NS[quantile], MISSED * duration_ns))


def span_seconds(flows: Sequence[dict[str, Any]], counted: str = "sent") -> float:
    """From the first frame of any flow to the last, and one more gap, so that a rate counts every frame."""
    first: list[int] = [flow["first_ns"] for flow in flows if flow.get("first_ns") is not None]
    last: list[int] = [flow["last_ns"] for flow in flows if flow.get("last_ns") is not None]
    frames: int = sum(flow[counted] for flow in flows)
    if not first or frames < 2:
        return 0.0
    return (max(last) - min(first)) / 1e9 * frames / (frames - 1)
