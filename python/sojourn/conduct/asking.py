"""One trial as the ends of its streams are asked for it: flows, ports, destinations, counts. Pure.

Does not run anything; the words are those of `sojourn-instrument stream serve`.
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
"""No sender here is faster: bounds the count of a flood, which its time ends."""

MOST_KEPT = 1_000_000
"""Frames of a trial that are kept one by one where the plan leaves it open; above, histograms."""

START_IN_NS = 2_000_000
"""From the request to the first departure: what a sender needs to make its frames."""


class Engines(NamedTuple):
    """What sends, and what receives."""

    send: str
    receive: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial, and what was decided about it just before: link, engines, rate."""

    plan: Plan
    trial: Trial[Factors]
    link: Link
    engines: Engines
    rate_pps: float | None
    """All senders together; None is a flood."""
    load_link: Link | None = None
    load_pps: float = 0.0
    pipe_ns: int = 0
    """How long emulators and rated links may keep a frame: a trial waits so much longer, and nothing is late before."""
    all_stamps: bool = False
    """Whether every time of a departure is taken, and frames pass the sender's queue."""
    one_clock: bool = True
    """Whether both ends read one clock; else the sender learns the receiver's by exchanges."""
    is_timed: bool = False
    """Whether it is a search's trial whose delays are wanted, between two clocks: those of its others are not."""

    @property
    def frames(self) -> int:
        """Frames that each sender is asked for; of a flood, more than its time allows."""
        trial, senders = self.trial, self.trial.factors.senders
        if trial.count is not None:
            return trial.count
        rate = self.rate_pps or MOST_PPS
        return max(1, round(rate * trial.duration_ns / 1e9 / senders))

    @property
    def is_flood(self) -> bool:
        """As fast as it goes, until its time is up."""
        return self.rate_pps is None and not self.trial.factors.schedule.startswith("ramp")

    @property
    def keep(self) -> str:
        """Each frame, or histograms alone."""
        if "live" in self.engines:
            return "histograms"
        if self.is_timed:  # bins cannot be brought to one clock
            return "packets"
        if self.plan.trials.keep != "auto":
            return str(self.plan.trials.keep)
        few = not self.is_flood and self.frames * self.trial.factors.senders <= MOST_KEPT
        return "packets" if few and self.trial.purpose == "measure" else "histograms"

    @property
    def late_after_ns(self) -> int:
        """A frame that comes later counts as late."""
        return int(self.plan.stream.late_after_ns + self.pipe_ns)

    @property
    def answering(self) -> int:
        """How many receivers answer each request in unicast: all, or of a round trip to a group the one measured."""
        if self.trial.factors.kind == "answers":
            return len(self.far)
        return 1 if self.trial.factors.kind in CLOSED_LOOPS else 0

    @property
    def far(self) -> tuple[Port, ...]:
        """The far ends that receive: the first is the one that is measured, others subscribe too."""
        return self.link.far[: 1 + self.trial.factors.receivers]

    @property
    def near(self) -> tuple[Port, ...]:
        """The near ends that send: one of them for all senders that are distinguished by their marks."""
        if self.plan.stream.marks:
            return (self.link.near[0],) * self.trial.factors.senders
        return self.link.near[: self.trial.factors.senders]

    @property
    def payload_bytes(self) -> int:
        """Of what is sent: the fixed request, where answers have the size that is asked."""
        fixed = self.trial.factors.kind in ("answers", "request-response")
        return self.plan.stream.request_payload_bytes if fixed else self.trial.factors.payload_bytes


def head(trial: Trial[Factors], purpose: str | None = None) -> dict[str, Any]:
    """What every request says of its trial."""
    return {
        "block": trial.block,
        "device": trial.device,
        "round": trial.round,
        "visit": trial.visit,
        "cell": trial.cell,
        "purpose": purpose or trial.purpose,
    }


def link_number(trial: Trial[Any]) -> int:
    """Which of the two links of its path's kind a trial takes; the log tells it."""
    return 2 if trial.second else 1


def sending(asked: Asked) -> dict[str, Any]:
    """The sender's request: one flow for each near end, merged by it into one sequence of departures."""
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
    """Whether ports and programs are left for the next trial: a search makes hundreds over the same path."""
    return asked.trial.purpose == "search" and not asked.is_timed


def own_answers(asked: Asked) -> dict[str, float]:
    """Answers to UDP come back to the socket that asked, so the sender accounts for them itself."""
    udp = asked.engines.send in ("udp", "udp6")
    return {"answers_late_after_ns": asked.late_after_ns} if udp and asked.answering else {}


def stamps(asked: Asked) -> str:
    """Which timestamps of a departure are taken: all for the latency breakdown, none where nobody keeps them."""
    if asked.all_stamps:
        return "all"
    return "departure" if asked.keep == "packets" else "none"


def time_limit(asked: Asked) -> dict[str, int]:
    """A flood ends when its time is up; a paced stream that cannot keep up is given three times its own."""
    own = asked.trial.duration_ns
    return {"at_most_ns": own if asked.is_flood else 3 * own + 1_000_000_000}


def flow(asked: Asked, number: int, port: Port) -> dict[str, Any]:
    """One flow from one near end; each further one falls behind by `stream.walk` intervals."""
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
    """The schedule in the instrument's words: a ramp in frames per second of each sender."""
    factors = asked.trial.factors
    if ends := ramp_ends(factors.schedule, factors.frame_bytes):
        return f"ramp:{ends[0] / factors.senders:g}-{ends[1] / factors.senders:g}"
    if asked.is_flood:
        return "flood"
    return "regular" if factors.schedule in ("flood", CLOSED_LOOP) else factors.schedule


def destination(asked: Asked, port: Port, number: int) -> dict[str, Any]:
    """Where a flow goes, by which means. Flows of other marks have sockets, and so source ports, of their own."""
    stream, to, engine = asked.plan.stream, asked.trial.factors.to, asked.engines.send
    if engine in ("udp", "udp6"):
        dscp = stream.marks[number - 1] if stream.marks else stream.dscp
        return {"via": "udp", "address": address(asked), "dev": port.dev, "dscp": dscp}
    there: dict[str, Any] = {"via": engine, "dev": port.dev, "mac": mac(asked.link, to)}
    if engine == "live":
        # A device's full ring loses what was sent; only our own receiver's refuses it. That frames leave at all was
        # seen when the engines were chosen.
        there |= {"into_device": bool(asked.link.stations), "proven": True}
    if engine == "packet":
        there |= {"vlan": stream.vlan, "pcp": stream.pcp, "qdisc_bypass": not asked.all_stamps}
    return there


def mac(link: Link, to: str) -> str:
    """The destination address of raw frames."""
    return {
        "unicast": link.b_mac,
        "broadcast": BROADCAST_MAC,
        "multicast": group_mac(link.octet),
        "unknown": link.nobody_mac,
    }[to]


def group_mac(link: int) -> str:
    """The group of a link: that of its IPv4 group, 239.77.0.<link>."""
    return f"01:00:5e:4d:00:{link:02x}"


def address(asked: Asked) -> str:
    """The destination address of UDP."""
    link, six = asked.link, asked.engines.send == "udp6"
    if asked.trial.factors.to == "multicast":
        return f"ff15::77:{link.octet:x}" if six else f"239.77.0.{link.octet}"
    if asked.trial.factors.to == "broadcast":
        return f"10.77.{link.octet}.255"
    return link.b_ip6 if six else link.b_ip4


def receiving(asked: Asked) -> dict[str, Any]:
    """The receiver's request: every far end that takes part, as a port of its own."""
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
    """One port of the receiver; where answers are asked for, tagged by which one it is."""
    udp = asked.engines.receive in ("udp", "udp6")
    groups = [address(asked) if udp else group_mac(asked.link.octet)] if asked.trial.factors.to == "multicast" else []
    via, via6 = ("udp" if udp else asked.engines.receive), asked.engines.receive == "udp6"
    there: dict[str, Any] = {"port": number, "via": via, "dev": port.dev, "groups": groups}
    if udp:
        there |= {"udp_port": STREAM_UDP_PORT, "address": "::" if via6 else "0.0.0.0"}
    return there | {"answer": number + 1 if number < asked.answering else None}


def answers_receiving(asked: Asked) -> dict[str, Any]:
    """The request of the end beside the sender, which receives what the far ends answer."""
    port = {"port": 0, "via": "packet", "dev": asked.near[0].dev, "groups": [], "answer": None}
    return head(asked.trial) | {
        "ports": [port],
        "flows": [1],
        "keep": asked.keep,
        "late_after_ns": asked.late_after_ns,
        "room": asked.frames * asked.answering,
    }


def load_sending(asked: Asked) -> dict[str, Any]:
    """The background: one flow through another pair of ports, for far longer than the foreground lasts."""
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
    """Whether a stream asks its receiver for its time: a second each, which the tester's own streams do without.

    Through an emulator the answers would have the error of what is configured there: the direct path's streams ask.
    """
    is_wanted = asked.plan.ask.joins_clocks and (asked.is_timed or asked.trial.purpose == "measure")
    return not asked.one_clock and is_wanted and not asked.link.emulated


def untimed_clock(asked: Asked) -> str:
    """What is said of the receiver's clock where nobody asks how long frames took: no exchange is worth its time."""
    return "shared" if asked.one_clock else "none"


def load_receiving(asked: Asked) -> dict[str, Any]:
    """Where the background ends."""
    _, far = load_ports(asked)
    there = {"port": FIRST_LOAD_PORT, "via": "packet", "dev": far.dev, "groups": [], "answer": None}
    own = {"ports": [there], "flows": [FIRST_LOAD_FLOW], "keep": "histograms", "room": 0}
    return head(asked.trial, "load") | own | {"late_after_ns": asked.late_after_ns}


def load_ports(asked: Asked) -> tuple[Port, Port]:
    """The pair of ports that the load takes: the last of its link, which the foreground leaves alone."""
    link = asked.load_link or asked.link
    return link.near[-1], link.far[-1]


def simulating(asked: Asked, path: dict[str, Any]) -> dict[str, Any]:
    """Both ends of a simulated path."""
    request = sending(asked)
    for one in request["flows"]:
        del one["to"]
    del request["stay_open"]  # there is nothing to be opened
    receive = {"keep": asked.keep, "late_after_ns": asked.late_after_ns}
    return request | {"path": path, "receive": receive, "clock": "exchange"}  # the path says whether they share one
