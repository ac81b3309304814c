"""Background traffic of a trial: UDP at a constant rate, streams, long TCP flows, short transfers.

Each part has a channel per direction, with its own block and programs, so that the trial's own flows are counted
without it. Does not judge, and does not know methods.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.conduct.connections import start_anywhere
from sojourn.errors import DoubtfulError
from sojourn.instruments import StreamInstrument
from sojourn.instruments.conversation import place_options
from sojourn.instruments.stream import serve_argv
from sojourn.instruments.tcp import DRAIN_SECONDS
from sojourn.plan.backgrounds import sources_of
from sojourn.plan.emulators import expected_ns

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator
    from contextlib import ExitStack

    from sojourn.bed.hosts import HostName
    from sojourn.conduct.part import Session
    from sojourn.instruments.tcp import TcpInstrument
    from sojourn.plan.backgrounds import Source
    from sojourn.plan.trial import Trial

HOSTS: dict[str, tuple[HostName, HostName]] = {"up": ("a", "b"), "down": ("b", "a")}
"""Sender and receiver, by direction."""

FIRST_PORT, PORTS = 10_000, 10_000
MARGIN_NS = 300_000_000
"""The time for which background traffic outlasts the flows, in addition to the time for their handshakes."""

FLOW = 1
TOLD = ("local", "started_ns", "ended_ns", "moved_bytes", "congestion")


@dataclass(frozen=True, slots=True)
class Channel:
    """One part of the background traffic in one direction."""

    source: Source
    direction: str
    number: int
    block: int

    @property
    def sender(self) -> HostName:
        """The host that sends."""
        return HOSTS[self.direction][0]

    @property
    def receiver(self) -> HostName:
        """The host that receives."""
        return HOSTS[self.direction][1]

    @property
    def port(self) -> int:
        """The port on which it is received."""
        return FIRST_PORT + self.block % PORTS


@dataclass(slots=True)
class Backgrounds:
    """The programs of a session that make background traffic, each started when a trial first needs it."""

    session: Session
    stack: ExitStack
    first: int
    """The number of blocks of a trial without those of its background traffic."""
    planned: int
    """The number of trials of the plan: the blocks of channels are numbered after them."""
    settings: dict[str, Any]
    """The options of TCP sockets."""
    read_every_ns: int
    _tcp: dict[str, TcpInstrument] = field(default_factory=dict)
    _udp: dict[str, StreamInstrument] = field(default_factory=dict)

    def begin(self, trial: Trial[Any], pipe: str, lasts_ns: int, connections: int) -> list[tuple[Channel, int]]:
        """Begin the background traffic of a trial; return its channels, each with the requested amount.

        `pipe`: the configuration of the emulators of its path.
        """
        found = []
        words, mtu = trial.factors.background, self.session.plan.bed.mtu
        longer = MARGIN_NS + 2 * connections * expected_ns(pipe)
        for channel in self._channels(trial, words):
            amount = channel.source.amount(lasts_ns + longer, mtu)
            if channel.source.kind == "udp":
                self._send_udp(trial, pipe, channel, amount)
            else:
                amount = channel.source.amount(lasts_ns, mtu)
                self._send_tcp(trial, channel, amount, lasts_ns + (longer if channel.source.kind == "tcp" else 0))
            found.append((channel, amount))
        return found

    def end(
        self, trial: Trial[Any], pipe: str, channels: list[tuple[Channel, int]], lasts_ns: int
    ) -> list[dict[str, Any]]:
        """Wait until all of it has been sent and received; return the result of each channel."""
        tick, told = self.session.screen.tick, []
        for channel, _ in channels:
            own = {"name": channel.source.name, "kind": channel.source.kind, "direction": channel.direction,
                   "block": channel.block}  # fmt: skip
            if channel.source.kind == "udp":
                told.append(own | self._end_udp(trial, pipe, channel))
                continue
            sent = self._tcp[self._name(channel)].answer(lasts_ns / 1e9 + DRAIN_SECONDS, tick)["connections"]
            received = self._tcp[f"{channel.receiver}bg"].finish_listening(channel.block)["connections"]
            if broken := [one["problem"] for one in (*sent, *received) if one["problem"]]:
                raise DoubtfulError(f"a background flow of trial {trial.block} broke: {broken[0]}")
            told.append(own | {"flows": [{name: one[name] for name in TOLD} for one in sent]})
        return told

    def _channels(self, trial: Trial[Any], words: str) -> Iterator[Channel]:
        number = 0
        for source in sources_of(words) or ():
            for way in source.ways(trial.factors.direction):
                yield Channel(source, way, number, trial.block + (self.first + number) * self.planned)
                number += 1

    def _name(self, channel: Channel, role: str = "") -> str:
        host = channel.receiver if role else channel.sender
        return f"{host}bg{channel.number}{role}"

    def _tcp_end(self, host: HostName, name: str) -> TcpInstrument:
        if name not in self._tcp:
            self._tcp[name] = start_anywhere(self.session, host, self.stack, name)
        return self._tcp[name]

    def _udp_end(self, host: HostName, name: str) -> StreamInstrument:
        if name not in self._udp:
            session = self.session
            options = place_options(None, "sleep", fifo=False)
            argv = serve_argv(session.instrument, session.records(host), session.part.number, name, options)
            end = StreamInstrument(session.site.start(host), argv)
            self.stack.callback(end.kill)
            self.stack.callback(end.finish, at_once=True)  # nothing is in flight, or is to be dropped
            self._udp[name] = end
        return self._udp[name]

    def _address(self, trial: Trial[Any], host: HostName) -> str:
        link = self.session.site.bed.topology.paths[trial.path]
        return str(link.a_ip4 if host == "a" else link.b_ip4)

    def _send_tcp(self, trial: Trial[Any], channel: Channel, amount: int, lasts_ns: int) -> None:
        source, block = channel.source, channel.block
        far = self._tcp_end(channel.receiver, f"{channel.receiver}bg")
        far.listen(block, channel.port, amount, self.settings)
        request = {"do": "send", "block": block, "to": f"{self._address(trial, channel.receiver)}:{channel.port}",
                   "settings": self.settings | {"congestion": source.algorithm}, "connections": source.flows,
                   "duration_ns": lasts_ns}  # fmt: skip
        if source.kind == "web":
            request |= {"bytes": source.size_bytes, "again_every_ns": source.every_ns}
        else:
            request["read_every_ns"] = self.read_every_ns
        self._tcp_end(channel.sender, self._name(channel)).ask(request)

    def _send_udp(self, trial: Trial[Any], pipe: str, channel: Channel, amount: int) -> None:
        session, source = self.session, channel.source
        link, mtu = session.site.bed.topology.paths[trial.path], session.plan.bed.mtu
        payload = source.payload_bytes(mtu)
        devices = {"a": link.a_dev, "b": link.b_dev}
        head = {"block": channel.block, "device": trial.device, "round": trial.round, "visit": trial.visit,
                "cell": trial.cell, "purpose": "load"}  # fmt: skip
        there = {"port": 0, "via": "udp", "dev": devices[channel.receiver], "udp_port": channel.port,
                 "address": self._address(trial, channel.receiver), "groups": [], "answer": None}  # fmt: skip
        late = session.emulators.longest_ns(trial.path, pipe) + 1_000_000_000
        self._udp_end(channel.receiver, self._name(channel, "r")).receive(
            head | {"ports": [there], "flows": [FLOW], "keep": "packets", "room": amount, "late_after_ns": late,
                    "payload_bytes": payload}
        )  # fmt: skip
        there_at = f"{self._address(trial, channel.receiver)}:{channel.port}"
        to = {"via": "udp", "address": there_at, "dev": devices[channel.sender], "dscp": source.dscp}
        flow = {"flow": FLOW, "to": to, "schedule": "regular" if source.burst == 1 else f"burst:{source.burst}",
                "rate_pps": source.rate_pps(mtu), "count": amount, "payload_bytes": payload,
                "seed": trial.seed % 2**62}  # fmt: skip
        clock = "shared" if session.site.bed.backend.one_clock else "none"
        self._udp_end(channel.sender, self._name(channel)).send(
            head | {"flows": [flow], "keep": "histograms", "stamps": "none", "clock": clock}
        )

    def _end_udp(self, trial: Trial[Any], pipe: str, channel: Channel) -> dict[str, Any]:
        """Stop the channel, and wait for frames in flight; return its flow's counters by sender and receiver."""
        session, sender = self.session, self._udp[self._name(channel)]
        tick, mtu = session.screen.tick, session.plan.bed.mtu
        sender.stop()
        [sent] = sender.sent(tick)["flows"]
        time.sleep(session.emulators.longest_ns(trial.path, pipe) / 1e9)
        totals = [{"flow": FLOW, "sent": sent["sent"], "next": sent["next"]}]
        receiver = self._udp[self._name(channel, "r")]
        [got] = receiver.finish_receiving(channel.block, totals, tick)["flows"]
        return {
            "started_ns": sent["first_ns"],
            "ended_ns": sent["last_ns"],
            "asked_pps": channel.source.rate_pps(mtu),
            "achieved_pps": sent["achieved_pps"],
            "frame_bytes": channel.source.frame_bytes(mtu),
            "payload_bytes": channel.source.payload_bytes(mtu),
            "one_clock": session.site.bed.backend.one_clock,
            "sent": sent["sent"],
            "refused": sent["refused"],
            "received": got["first"],
            "lost": got["lost"],
            "local_drops": got["local_drops"],
        }


def is_recorded(trial: dict[str, Any], ends: Counter[tuple[int, str, str]], streams: Collection[int]) -> bool:
    """Return whether the background traffic of a trial is recorded: readings of its connections, and its streams."""
    return all(
        channel["block"] in streams
        if channel["kind"] == "udp"
        else ends.get((channel["block"], HOSTS[channel["direction"]][0], "send"), 0) >= len(channel["flows"])
        for channel in trial.get("background", ())
    )
