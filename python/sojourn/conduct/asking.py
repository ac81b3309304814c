"""The requests to the ends of the streams of one trial: flows, ports, destinations, counts. Pure.

Does not run anything; the format is that of `sojourn-instrument stream serve`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sojourn.plan.rates import ramp_ends
from sojourn.plan.sizes import ETHERNET
from sojourn.plan.trials import CLOSED_LOOP, CLOSED_LOOPS

if TYPE_CHECKING:
    from sojourn.bed.model import Link, Port
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.plan.trials import Factors

STREAM_UDP_PORT = 7708
FIRST_LOAD_FLOW = 101
FIRST_LOAD_PORT = 100
BROADCAST_MAC = "ff:ff:ff:ff:ff:ff"
MOST_PPS = 8_000_000
"""No sender is faster: this limits the count of a flood, which ends by its duration."""

MOST_KEPT = 1_000_000
"""The most frames of a trial that are recorded one by one if `keep` is auto; above, histograms are recorded."""

START_IN_NS = 2_000_000
"""The time from the request to the first departure: what a sender needs to build its frames."""


class Engines(NamedTuple):
    """The engines for sending and for receiving."""

    send: str
    receive: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial, with what was decided just before it: link, engines, rate."""

    plan: Plan
    trial: Trial[Factors]
    link: Link
    engines: Engines
    rate_pps: float | None
    """The rate of all senders together; None for a flood."""
    load_link: Link | None = None
    load_pps: float = 0.0
    pipe_ns: int = 0
    """The longest time that emulators and rated links may hold a frame; it extends the wait for late frames."""
    all_stamps: bool = False
    """Whether all timestamps of a departure are taken, and frames pass the sender's qdisc."""
    one_clock: bool = True
    """Whether both ends have the same clock; otherwise the sender measures the offset by exchanges."""
    is_timed: bool = False
    """Whether it is a trial of a search whose delays are needed although the ends have two clocks."""

    @property
    def frames(self) -> int:
        """The number of frames that each sender is asked for; for a flood, more than its duration allows."""
        trial, senders = self.trial, self.trial.factors.senders
        if trial.count is not None:
            return trial.count
        rate = self.rate_pps or MOST_PPS
        return max(1, round(rate * trial.duration_ns / 1e9 / senders))

    @property
    def is_flood(self) -> bool:
        """Whether the stream is sent at the maximum rate until its duration is over."""
        return self.rate_pps is None and not self.trial.factors.schedule.startswith("ramp")

    @property
    def keep(self) -> str:
        """What is recorded: each frame, or only histograms."""
        if "live" in self.engines:
            return "histograms"
        if self.is_timed:  # histograms cannot be corrected for a clock offset
            return "packets"
        if self.plan.trials.keep != "auto":
            return str(self.plan.trials.keep)
        few = not self.is_flood and self.frames * self.trial.factors.senders <= MOST_KEPT
        return "packets" if few and self.trial.purpose == "measure" else "histograms"

    @property
    def late_after_ns(self) -> int:
        """The delay above which a frame counts as late."""
        return int(self.plan.stream.late_after_ns + self.pipe_ns)

    @property
    def answering(self) -> int:
        """The number of receivers that answer each request in unicast: all, or only the measured one."""
        if self.trial.factors.kind == "answers":
            return len(self.far)
        return 1 if self.trial.factors.kind in CLOSED_LOOPS else 0

    @property
    def far(self) -> tuple[Port, ...]:
        """The B-side ends that receive: the first is the measured one; others subscribe too."""
        return self.link.far[: 1 + self.trial.factors.receivers]

    @property
    def near(self) -> tuple[Port, ...]:
        """The A-side ends that send: one for all senders if these differ in their DSCP."""
        if self.plan.stream.marks:
            return (self.link.near[0],) * self.trial.factors.senders
        return self.link.near[: self.trial.factors.senders]

    @property
    def payload_bytes(self) -> int:
        """The payload of what is sent: the fixed request, if the configured size is that of responses."""
        fixed = self.trial.factors.kind in ("answers", "request-response")
        return self.plan.stream.request_payload_bytes if fixed else self.trial.factors.payload_bytes


def head(trial: Trial[Factors], purpose: str | None = None) -> dict[str, Any]:
    """Return the fields that every request has about its trial."""
    return {
        "block": trial.block,
        "device": trial.device,
        "round": trial.round,
        "visit": trial.visit,
        "cell": trial.cell,
        "purpose": purpose or trial.purpose,
    }


def link_number(trial: Trial[Any]) -> int:
    """Return which of the two links of its path's kind a trial uses; it is logged."""
    return 2 if trial.second else 1


def sending(asked: Asked) -> dict[str, Any]:
    """Return the sender's request: one flow per A-side end; the sender merges them into one sequence of departures."""
    flows = [flow(asked, number, port) for number, port in enumerate(asked.near, start=1)]
    return (
        head(asked.trial)
        | {
            "flows": flows,
            "keep": asked.keep,
            "stamps": stamps(asked),
            "clock": "exchange" if asks_clock(asked) else untimed_clock(asked),
            "start_in_ns": START_IN_NS,
            "stay_open": stays_open(asked),
        }
        | time_limit(asked)
    )


def stays_open(asked: Asked) -> bool:
    """Return whether ports and programs stay open for the next trial: a search makes hundreds over the same path."""
    return asked.trial.purpose == "search" and not asked.is_timed


def own_answers(asked: Asked) -> dict[str, float]:
    """Answers to UDP are received by the requesting socket, so the sender accounts for them itself."""
    udp = asked.engines.send in ("udp", "udp6")
    return {"answers_late_after_ns": asked.late_after_ns} if udp and asked.answering else {}


def stamps(asked: Asked) -> str:
    """Return which timestamps of a departure are taken: all for the latency breakdown, none if none are recorded."""
    if asked.all_stamps:
        return "all"
    return "departure" if asked.keep == "packets" else "none"


def time_limit(asked: Asked) -> dict[str, int]:
    """Return the time limit: a flood ends with its duration; a paced stream that is too slow gets three times that."""
    own = asked.trial.duration_ns
    return {"at_most_ns": own if asked.is_flood else 3 * own + 1_000_000_000}


def flow(asked: Asked, number: int, port: Port) -> dict[str, Any]:
    """Return one flow from one A-side end; each further flow has `stream.walk` frames less than the one before."""
    count = max(1, asked.frames - (number - 1) * asked.plan.stream.walk)
    rate = (asked.rate_pps or 0.0) / asked.trial.factors.senders
    return {
        "flow": number,
        "to": destination(asked, port, number),
        "schedule": schedule(asked),
        "rate_pps": rate * (count / asked.frames),
        "count": count,
        "payload_bytes": asked.payload_bytes,
        "seed": asked.trial.seed + number,
    }


def schedule(asked: Asked) -> str:
    """Return the schedule in the instrument's format: a ramp in frames per second of each sender."""
    factors = asked.trial.factors
    if ends := ramp_ends(factors.schedule, factors.frame_bytes):
        return f"ramp:{ends[0] / factors.senders:g}-{ends[1] / factors.senders:g}"
    if asked.is_flood:
        return "flood"
    return "regular" if factors.schedule in ("flood", CLOSED_LOOP) else factors.schedule


def destination(asked: Asked, port: Port, number: int) -> dict[str, Any]:
    """Return engine and destination of a flow. Flows with different DSCP have their own sockets and source ports."""
    stream, to, engine = asked.plan.stream, asked.trial.factors.to, asked.engines.send
    if engine in ("udp", "udp6"):
        dscp = stream.marks[number - 1] if stream.marks else stream.dscp
        return {"via": "udp", "address": address(asked), "dev": port.dev, "dscp": dscp}
    there: dict[str, Any] = {"via": engine, "dev": port.dev, "mac": mac(asked.link, to)}
    if engine == "live":
        # A full ring of a device loses frames that were sent; only our own receiver's refuses them. That frames leave
        # was checked when the engines were chosen.
        there |= {"into_device": bool(asked.link.stations), "proven": True}
    if engine == "packet":
        there |= {"vlan": stream.vlan, "pcp": stream.pcp, "qdisc_bypass": not asked.all_stamps}
    return there


def mac(link: Link, to: str) -> str:
    """Return the destination MAC address of raw frames."""
    return {
        "unicast": link.b_mac,
        "broadcast": BROADCAST_MAC,
        "multicast": group_mac(link.octet),
        "unknown": link.nobody_mac,
    }[to]


def group_mac(link: int) -> str:
    """Return the group MAC address of a link: that of its IPv4 group, 239.77.0.<link>."""
    return f"01:00:5e:4d:00:{link:02x}"


def address(asked: Asked) -> str:
    """Return the destination address of UDP."""
    link, six = asked.link, asked.engines.send == "udp6"
    if asked.trial.factors.to == "multicast":
        return f"ff15::77:{link.octet:x}" if six else f"239.77.0.{link.octet}"
    if asked.trial.factors.to == "broadcast":
        return f"10.77.{link.octet}.255"
    return link.b_ip6 if six else link.b_ip4


def receiving(asked: Asked) -> dict[str, Any]:
    """Return the receiver's request: every B-side end that takes part, as a port of its own."""
    factors = asked.trial.factors
    ports = [listening(asked, number, port) for number, port in enumerate(asked.far)]
    total = asked.frames * factors.senders
    request = head(asked.trial) | {
        "ports": ports,
        "flows": list(range(1, factors.senders + 1)),
        "keep": asked.keep,
        "late_after_ns": asked.late_after_ns,
        "room": 0 if asked.is_flood else total,
        "payload_bytes": asked.payload_bytes,
        "stay_open": stays_open(asked),
    }
    return request | ({"answer_payload_bytes": factors.payload_bytes} if asked.answering else {})


def listening(asked: Asked, number: int, port: Port) -> dict[str, Any]:
    """Return one port of the receiver; if it answers, with its number."""
    udp = asked.engines.receive in ("udp", "udp6")
    groups = [address(asked) if udp else group_mac(asked.link.octet)] if asked.trial.factors.to == "multicast" else []
    via, via6 = ("udp" if udp else asked.engines.receive), asked.engines.receive == "udp6"
    there: dict[str, Any] = {"port": number, "via": via, "dev": port.dev, "groups": groups}
    if udp:
        there |= {"udp_port": STREAM_UDP_PORT, "address": "::" if via6 else "0.0.0.0"}
    return there | {"answer": number + 1 if number < asked.answering else None}


def answers_receiving(asked: Asked) -> dict[str, Any]:
    """Return the request of the receiver at the A side, which receives the answers of the B-side ends."""
    port = {"port": 0, "via": "packet", "dev": asked.near[0].dev, "groups": [], "answer": None}
    return head(asked.trial) | {
        "ports": [port],
        "flows": [1],
        "keep": asked.keep,
        "late_after_ns": asked.late_after_ns,
        "room": asked.frames * asked.answering,
    }


def load_sending(asked: Asked) -> dict[str, Any]:
    """Return the request of the background load: one flow through another pair of ports, which outlasts the trial."""
    near, far = load_ports(asked)
    stream = asked.plan.stream
    seconds = 3 * asked.trial.duration_ns / 1e9 + 60
    one = {
        "flow": FIRST_LOAD_FLOW,
        "to": {"via": "packet", "dev": near.dev, "mac": far.mac, "vlan": None, "pcp": None, "qdisc_bypass": True},
        "schedule": stream.load_schedule,
        "rate_pps": asked.load_pps,
        "count": max(1, round(asked.load_pps * seconds)),
        "payload_bytes": stream.load_frame_bytes - ETHERNET,
        "seed": asked.trial.seed + FIRST_LOAD_FLOW,
    }
    own = {"flows": [one], "keep": "histograms", "stamps": "none", "start_in_ns": START_IN_NS}
    return head(asked.trial, "load") | own | {"clock": untimed_clock(asked)}


def asks_clock(asked: Asked) -> bool:
    """Return whether a stream measures the receiver's clock: a second per stream, which the tester's own streams skip.

    Over an emulator the exchanges would have the error of its configuration: the streams of the direct path make them.
    """
    is_wanted = asked.plan.ask.joins_clocks and (asked.is_timed or asked.trial.purpose == "measure")
    return not asked.one_clock and is_wanted and not asked.link.emulated


def untimed_clock(asked: Asked) -> str:
    """Return the relation of the clocks for a stream whose delays are not needed, which makes no exchanges."""
    return "shared" if asked.one_clock else "none"


def load_receiving(asked: Asked) -> dict[str, Any]:
    """Return the request of the background load's receiver."""
    _, far = load_ports(asked)
    there = {"port": FIRST_LOAD_PORT, "via": "packet", "dev": far.dev, "groups": [], "answer": None}
    own = {"ports": [there], "flows": [FIRST_LOAD_FLOW], "keep": "histograms", "room": 0}
    return head(asked.trial, "load") | own | {"late_after_ns": asked.late_after_ns}


def load_ports(asked: Asked) -> tuple[Port, Port]:
    """Return the ports of the background load: the last pair of its link, which the trial does not use."""
    link = asked.load_link or asked.link
    return link.near[-1], link.far[-1]


def simulating(asked: Asked, path: dict[str, Any]) -> dict[str, Any]:
    """Return the request of both ends of a simulated path."""
    request = sending(asked)
    for one in request["flows"]:
        del one["to"]
    del request["stay_open"]  # no port needs to be opened
    receive = {"keep": asked.keep, "late_after_ns": asked.late_after_ns}
    return request | {"path": path, "receive": receive, "clock": "exchange"}  # `path` says whether both ends share one
