"""A flow over a path, made up to order: what its sender, its receiver and an emulator between them recorded.

A segment leaves each `gap_ns`, waits as `wait` says, and is received `delay_ns` later; its acknowledgement takes as
long back. What is lost is retransmitted three round trips later. What limits the sender is put into its samples as the
kernel would show it. Every number follows from these, so that what is found can be compared with the truth.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.records import TABLES
from tests.unit.made_up_tcp import START, Log, MadeFlow, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

MSS = 1448
ACK, PSH_ACK = 16, 24
SOON_NS = 5_000
TAP_NS, CALL_NS = 1_000, 2_000
SENDER, RECEIVER = ("10.9.0.1", 40_000), ("10.9.0.2", 5201)
SENDER6, RECEIVER6 = ("fd09::1", 40_000), ("fd09::2", 5201)
MADE = Log((MadeFlow(rounds=1),))


@dataclass
class MadePath:
    """The flow: how many segments, how far apart, what the path does, and what TCP shows."""

    segments: int = 600
    gap_ns: int = 2_000_000
    delay_ns: int = 10_000_000
    wait: Callable[[int], int] = lambda _: 600_000
    lost: Mapping[int, str] = field(default_factory=dict)
    """By segment, the cause; "corrupted": it departs with a flipped bit, and the receiver drops it."""

    copied: Collection[int] = ()
    """Segments of which the emulator sends a copy 100 µs behind."""

    pauses: Mapping[int, int] = field(default_factory=dict)
    """By segment, how much later than its turn it and all behind it leave."""

    per_packet: int = 1
    """Segments in a packet of the sender's (GSO)."""

    joined: int = 1
    """Segments in a packet of the receiver's (GRO)."""

    isn: int = 1_000_000
    family: int = 4
    vlan: bool = False
    shows: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the sender's samples; by default a full congestion window that was reduced once."""

    receiver_shows: Mapping[str, Any] = field(default_factory=dict)
    algorithm: str = "cubic"
    stamped_late_ns: int = 0
    """By how much later than it was a departure is stamped."""

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The sender's and the receiver's address and port."""
        return (SENDER, RECEIVER) if self.family == 4 else (SENDER6, RECEIVER6)

    def sent_ns(self, segment: int) -> int:
        """When it left; a packet's segments leave together."""
        first = segment - segment % self.per_packet
        return START + first * self.gap_ns + sum(ns for at, ns in self.pauses.items() if at <= first)

    @property
    def rtt_ns(self) -> int:
        """Without a queue."""
        return 2 * self.delay_ns + 2 * SOON_NS

    def sights(self) -> list[tuple[int, int, bool]]:
        """Each sending: when, which segment, whether again; in the order of time."""
        first = [(self.sent_ns(one), one, False) for one in range(self.segments)]
        again = [(self.sent_ns(one) + 3 * self.rtt_ns + one % 7, one, True) for one in self.lost]
        return sorted([*first, *again])

    def seq(self, segment: int) -> int:
        """The sequence number of its first byte."""
        return (self.isn + 1 + segment * MSS) % 2**32

    def write(self, path: Path, *, receiver: bool = True, emulator: bool = True) -> None:
        """`path/t` is the log of both ends, flows 1 and 2; `path/e` the emulator's."""
        packets, arrived = self._passed()
        sent, got = self._sender(arrived), self._receiver(arrived)
        truth = MADE.make()
        truth.tables["tcp_samples"] = _declared("tcp_samples", [*sent, *(got if receiver else [])])
        truth.tables["tcp_flows"] = _declared("tcp_flows", self._flows(sent, got if receiver else []))
        (path / "t").mkdir(parents=True, exist_ok=True)
        MADE.write(path / "t")
        truth.write_records(path / "t" / "records")
        if emulator:
            (path / "e").mkdir(exist_ok=True)
            write_table_of(path / "e" / "packets-emulate-000.arrow", packets)

    def write_calls(self, path: Path, each: int = 10) -> None:
        """`path/w` has the calls of the sender's application: so many segments each, just before they leave."""
        (local, port), (remote, remote_port) = self.ends
        rows = [
            {
                "connection": 0, "role": "send", "why": "send", "number": number, "local_address": local,
                "local_port": port, "remote_address": remote, "remote_port": remote_port,
                "read_after_ns": self.sent_ns(first) - 2 * CALL_NS, "sent_ns": self.sent_ns(first) - CALL_NS,
                "handed_bytes": min(each, self.segments - first) * MSS,
            }
            for number, first in enumerate(range(0, self.segments, each))
        ]  # fmt: skip
        (path / "w").mkdir()
        write_table_of(path / "w" / "tcp_readings-a-000.arrow", rows, "tcp_readings")

    def write_taps(
        self,
        path: Path,
        minus_utc_ns: int,
        blind: Collection[int] = (),
        stray: int = 0,
        micro: bool = False,
        far_blind: Collection[int] = (),
    ) -> None:
        """`path/c` has what taps saw; `near` misses the sendings `blind`, `far` misses `far_blind` and sees strays.

        `micro`: the files have whole microseconds, as tcpdump's have.
        """
        _, arrived = self._passed()
        sights = self.sights()
        near = [
            (at + TAP_NS, self._head(place, one)) for place, (at, one, _) in enumerate(sights) if place not in blind
        ]
        far = [(at - SOON_NS + TAP_NS, self._head(place, one)) for at, one, place in arrived if place not in far_blind]
        damaged = [
            place for place, (_, one, again) in enumerate(sights) if not again and self.lost.get(one) == "corrupted"
        ]
        for place in damaged:
            at, one, _ = sights[place]
            far.append((at + SOON_NS + self.wait(one) + self.delay_ns + TAP_NS, self._head(place, one)))
        far += [(START + TAP_NS, self._head(9_000 + place, self.segments + place)) for place in range(stray)]
        for at, nxt in self._acks(arrived):
            far.append((at - self.delay_ns + TAP_NS, self._ack_head(nxt)))
            near.append((at - TAP_NS, self._ack_head(nxt)))
        (path / "c").mkdir()
        for name, frames in (("near", near), ("far", far)):
            octets = [struct.pack("<IHHiIII", 0xA1B2_C3D4 if micro else 0xA1B2_3C4D, 2, 4, 0, 0, 262_144, 1)]
            for at, head in sorted(frames):
                utc = at - minus_utc_ns
                part = utc % 10**9 // 1_000 if micro else utc % 10**9
                octets.append(struct.pack("<IIII", utc // 10**9, part, len(head), len(head) + MSS) + head)
            (path / "c" / f"{name}.pcap").write_bytes(b"".join(octets))

    def _acks(self, arrived: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """When the sender gets each acknowledgement, and the segment that it asks for."""
        acks, held, nxt = [], set[int](), 0
        for at, segment, _ in arrived:
            held.add(segment)
            while nxt in held:
                nxt += 1
            acks.append((at + self.delay_ns, nxt))
        return acks

    def _ack_head(self, nxt: int) -> bytes:
        (destination, dport), (source, sport) = self.ends
        addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
        tcp = struct.pack(">HHIIHHHH", sport, dport, 5_000_001, self.seq(nxt), 8 << 12 | ACK, 502, 0, 0) + bytes(12)
        if self.family == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 52, 0, 0x4000, 64, 6, 0) + addresses
            return bytes(12) + struct.pack(">H", 0x0800) + ip + tcp
        return bytes(12) + struct.pack(">HIHBB", 0x86DD, 6 << 28, 32, 6, 64) + addresses + tcp

    def _passed(self) -> tuple[list[dict[str, Any]], list[tuple[int, int, int]]]:
        """What the emulator logged, and when each sending that arrived did: time, segment, its place."""
        packets: list[dict[str, Any]] = []
        copies: list[dict[str, Any]] = []
        arrived = []
        for place, (at, segment, again) in enumerate(self.sights()):
            cause = "" if again else self.lost.get(segment, "")
            is_damaged = cause == "corrupted"
            cause = "" if is_damaged else cause
            left = at + SOON_NS + self.wait(segment)
            row = {
                "number": place,
                "direction": "forward",
                "pipe": "forward",
                "frame_bytes": MSS + 66 + 4,
                "head": self._head(place, segment),
                "arrival_ns": at + SOON_NS,
                "entered_ns": at + SOON_NS,
                "disposition": "lost" if cause else "sent",
                "cause": cause,
                "flipped": int(is_damaged),
                "link_left_ns": None if cause else left,
                "intended_ns": None if cause else left + self.delay_ns,
                "departure_ns": None if cause else left + self.delay_ns + self.stamped_late_ns,
                "queue_slots": 0,
            }
            packets.append(row)
            if not cause and not is_damaged:
                arrived.append((left + self.delay_ns + SOON_NS, segment, place))
            if segment in self.copied:
                copies.append(row | {"number": len(self.sights()) + len(copies), "copy_of": place})
                arrived.append((left + self.delay_ns + SOON_NS + 100_000, segment, place))
        return [*packets, *copies], sorted(arrived)

    def _head(self, place: int, segment: int) -> bytes:
        (source, sport), (destination, dport) = self.ends
        addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
        tcp = struct.pack(">HHIIHHHH", sport, dport, self.seq(segment), 5_000_001, 8 << 12 | ACK, 502, 0, 0) + bytes(12)
        tag = struct.pack(">HH", 0x8100, 7) if self.vlan else b""
        if self.family == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + 32 + MSS, self.ip_id(place), 0x4000, 64, 6, 0) + addresses
            return bytes(12) + tag + struct.pack(">H", 0x0800) + ip + tcp
        ip = struct.pack(">IHBB", 6 << 28, 32 + MSS, 6, 64) + addresses
        return bytes(12) + tag + struct.pack(">H", 0x86DD) + ip + tcp

    def ip_id(self, place: int) -> int:
        """A number for each sending; none in IPv6."""
        return (65_000 + place) % 65_536 if self.family == 4 else 0

    def _sender(self, arrived: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
        """Samples of what leaves, and of the acknowledgements, each before TCP deals with it."""
        acks = self._acks(arrived)
        places = {(at, one, again): place for place, (at, one, again) in enumerate(self.sights())}
        leaving = [one for one in self.sights() if one[2] or one[1] % self.per_packet == 0]
        events = [*((at, 1, one) for at, one, again in leaving if not again), *((at, 2, one) for at, one in acks)]
        events += [(at, 0, one) for at, one, again in leaving if again]
        rows, una, sent = [], 0, 0
        for at, kind, which in sorted(events):
            is_out = kind != 2
            count = self.per_packet if kind == 1 else 1
            place = places.get((at, which, kind == 0), 0) if is_out else 0
            shown = self._shown(una, sent) | {
                "flow": 1, "time_ns": at, "point": "out" if is_out else "in", "tcp_flags": ACK,
                "seq": self.seq(which) if is_out else 5_000_001,
                "ack": 5_000_001 if is_out else self.seq(which),
                "payload_bytes": count * MSS if is_out else 0,
                "packet_bytes": count * MSS + 52, "segments": count, "ip_id": self.ip_id(place) if is_out else 0,
            }  # fmt: skip
            rows.append(shown)
            una = una if is_out else max(una, which)
            sent = max(sent, which + count) if kind == 1 else sent
        return [row | {"number": number} for number, row in enumerate(rows)]

    def _shown(self, una: int, sent: int) -> dict[str, Any]:
        """The sender's state: by default busy, with a full congestion window and more to send."""
        flight = sent - una
        rtt_us = (self.rtt_ns + self.wait(max(una - 1, 0))) // 1000
        state = {
            "state": 1, "ca_state": 0, "snd_cwnd": 10, "snd_ssthresh": 8, "mss_bytes": MSS, "snd_wnd_bytes": 1_000_000,
            "snd_una": self.seq(una), "snd_nxt": self.seq(sent), "rcv_nxt": 5_000_001,
            "in_flight_bytes": flight * MSS, "snd_queued_bytes": flight * MSS + 100_000, "packets_out": flight,
            "sacked_out": 0, "lost_out": 0, "retrans_out": 0, "flags": 1 << 10, "limited_by": "busy",
            "srtt_us": float(rtt_us), "rtt_last_us": rtt_us, "pacing_rate_bps": 7_000_000, "sndbuf_bytes": 200_000,
            "sent_bytes": sent * MSS, "received_bytes": 0,
        }  # fmt: skip
        return state | dict(self.shows)

    def _receiver(self, arrived: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
        """Samples of what comes in; some in a row are one packet, where the receiver joins them."""
        rows: list[dict[str, Any]] = []
        left = list(arrived)
        while left:
            held = [left.pop(0)]
            while left and len(held) < self.joined and left[0][1] == held[-1][1] + 1:
                held.append(left.pop(0))
            _, segment, number = held[0]
            state = {
                "state": 1, "rcv_wnd_bytes": 1_000_000, "rcv_queued_bytes": 0, "rcv_ooopack": 0, "mss_bytes": MSS,
                "snd_cwnd": 10, "snd_una": 5_000_001, "snd_nxt": 5_000_001, "rcv_nxt": self.seq(segment),
                "in_flight_bytes": 0, "snd_queued_bytes": 0, "limited_by": "idle", "flags": 0, "ca_state": 0,
                "sent_bytes": 0, "received_bytes": segment * MSS,
            } | dict(self.receiver_shows)  # fmt: skip
            rows.append(
                state
                | {
                    "flow": 2, "cpu": 1, "number": len(rows), "time_ns": held[-1][0], "point": "in", "tcp_flags": ACK,
                    "seq": self.seq(segment), "ack": 5_000_001, "payload_bytes": MSS * len(held),
                    "packet_bytes": MSS * len(held) + 52, "segments": len(held), "ip_id": self.ip_id(number),
                }
            )  # fmt: skip
        return rows

    def _flows(self, sent: list[dict[str, Any]], got: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mine, other = self.ends
        rows = []
        for number, (ends, samples) in enumerate((((mine, other), sent), ((other, mine), got)), start=1):
            if samples:
                (local, port), (remote, remote_port) = ends
                rows.append({
                    "flow": number, "local_address": local, "local_port": port, "remote_address": remote,
                    "remote_port": remote_port, "algorithm": self.algorithm, "first_ns": samples[0]["time_ns"],
                    "last_ns": samples[-1]["time_ns"], "wanted": True,
                })  # fmt: skip
        return rows


POLARS = {"bool": pl.Boolean, "int32": pl.Int32, "int64": pl.Int64, "float64": pl.Float64, "binary": pl.Binary}


def _declared(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a table, what they do not say null; what may not be null is 0."""
    columns = {}
    for one in TABLES[name].values():
        kind = POLARS.get(one.type, pl.String)
        empty = None if one.nullable else {pl.Boolean: False, pl.String: "", pl.Binary: b""}.get(kind, 0)
        columns[one.name] = pl.Series(one.name, [row.get(one.name, empty) for row in rows], kind, strict=False)
    return pl.DataFrame(columns)


def write_table_of(path: Path, rows: list[dict[str, Any]], name: str = "packets") -> None:
    """One file of a table."""
    write_table(path, name, _declared(name, rows))
