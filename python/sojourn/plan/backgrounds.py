"""Background traffic on the path of the measured flows, in the notation of plans. Pure.

It has up to four parts: UDP at a constant rate, small packets whose one-way delay is measured, long TCP flows, and
repeated short transfers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sojourn.plan.dscp import code_of, name_of
from sojourn.plan.values import Reader
from sojourn.units import nanoseconds
from sojourn.units import rate as rate_of

NONE = "none"
"""The notation for no background; factors have an empty text for it."""

MOST_PARTS = 4
JOIN = " + "
WAYS = ("down", "up", "both")
UDP_HEADERS, ETHERNET_BYTES = 28, 14
"""Bytes of the headers of IPv4 and UDP; and of Ethernet, without FCS."""

STREAM_BYTES = 46
"""User data of a packet of a stream, in bytes."""

MOST_FLOWS = 1000
MOST_TRANSFERS = 1000
"""The most transfers of a part in a trial, limited by the receiver."""

MOST_PACKETS = 1_000_000
"""The most packets of a part in a trial: each is recorded."""

LEAST_EVERY_NS = 1_000_000
MOST_BYTES = 1 << 30
SIZES = {"B": 1, "kB": 1000, "MB": 1_000_000}
ALGORITHM = r"[a-z][a-z0-9_]*"
WAY = r"( (?P<way>down|up|both))?"
UDP = re.compile(rf"udp (?P<rate>\S+)( burst (?P<burst>[1-9]\d{{0,4}}))?{WAY}")
STREAM = re.compile(rf"stream (?P<rate>\S+)( (?!down\b|up\b|both\b)(?P<dscp>[A-Z0-9]+))?{WAY}")
TCP = re.compile(rf"tcp (?P<flows>[1-9]\d{{0,3}})( (?!down\b|up\b|both\b)(?P<algorithm>{ALGORITHM}))?{WAY}")
WEB = re.compile(
    rf"web (?P<flows>[1-9]\d{{0,3}}) x (?P<size>\d+)(?P<unit>B|kB|MB) every (?P<every>\S+)"
    rf"( (?!down\b|up\b|both\b)(?P<algorithm>{ALGORITHM}))?{WAY}"
)


@dataclass(frozen=True, slots=True)
class Source:
    """One part of a background."""

    kind: str
    """udp, tcp or web."""
    words: str
    """The part in the notation of plans, without its direction."""
    way: str = ""
    """down, up or both; if empty, the direction of the measured flows."""
    rate_bps: float = 0.0
    """The rate of UDP, in frames without FCS, as an emulator counts it."""
    stream_pps: float = 0.0
    """Packets per second of a stream (UDP in small packets)."""
    dscp: int = 0
    burst: int = 1
    """Packets of UDP that are sent together."""
    flows: int = 0
    """Long flows, or transfers that begin together."""
    algorithm: str = ""
    size_bytes: int = 0
    every_ns: int = 0

    @property
    def name(self) -> str:
        """The part in the notation of plans, with its direction."""
        return f"{self.words} {self.way}".strip()

    def ways(self, direction: str) -> tuple[str, ...]:
        """Return its directions beside flows of this direction."""
        own = self.way or direction
        return ("up", "down") if own == "both" else (own,)

    def payload_bytes(self, mtu: int) -> int:
        """Return the user data of a UDP packet; unless it is a stream, the packet has the size of the MTU."""
        return STREAM_BYTES if self.stream_pps else mtu - UDP_HEADERS

    def frame_bytes(self, mtu: int) -> int:
        """Return the size of a UDP frame, without FCS."""
        return self.payload_bytes(mtu) + UDP_HEADERS + ETHERNET_BYTES

    def rate_pps(self, mtu: int) -> float:
        """Return UDP packets per second."""
        return self.stream_pps or self.rate_bps / 8 / self.frame_bytes(mtu)

    def amount(self, lasts_ns: int, mtu: int) -> int:
        """Return the UDP packets or web transfers in a time; for other kinds the flows."""
        if self.kind == "udp":
            return max(1, round(self.rate_pps(mtu) * lasts_ns / 1e9))
        return self.flows * -(-lasts_ns // self.every_ns) if self.kind == "web" else self.flows

    @property
    def most(self) -> int:
        """The most of these in a trial."""
        return {"udp": MOST_PACKETS, "web": MOST_TRANSFERS, "tcp": MOST_FLOWS}[self.kind]


def source_of(words: str) -> Source | None:
    """Parse one part of a background; None if it is malformed."""
    words = " ".join(words.split())
    if found := UDP.fullmatch(words):
        said = rate_of(found["rate"])
        if said is None or said[0] != "bit/s" or said[1] <= 0:
            return None
        own = Source("udp", words, rate_bps=float(said[1]), burst=int(found["burst"] or 1))
    elif found := STREAM.fullmatch(words):
        said, dscp = rate_of(found["rate"]), code_of(found["dscp"] or "BE")
        if said is None or said[0] != "pps" or said[1] <= 0 or dscp is None:
            return None
        own = Source("udp", f"stream {found['rate']}" + (f" {name_of(dscp)}" if dscp else ""),
                     stream_pps=float(said[1]), dscp=dscp)  # fmt: skip
        words = own.words + (f" {found['way']}" if found["way"] else "")
    elif found := TCP.fullmatch(words):
        own = Source("tcp", words, flows=int(found["flows"]), algorithm=found["algorithm"] or "cubic")
    elif found := WEB.fullmatch(words):
        every, size = nanoseconds(found["every"]), int(found["size"]) * SIZES[found["unit"]]
        if every is None or every != int(every) or every < LEAST_EVERY_NS or not 1 <= size <= MOST_BYTES:
            return None
        own = Source("web", words, flows=int(found["flows"]), algorithm=found["algorithm"] or "cubic",
                     size_bytes=size, every_ns=int(every))  # fmt: skip
    else:
        return None
    way = found["way"] or ""
    return (
        replace(own, words=words.removesuffix(f" {way}") if way else words, way=way)
        if own.flows <= MOST_FLOWS
        else None
    )


def sources_of(words: str) -> tuple[Source, ...] | None:
    """Parse the parts of a background, all different; empty for none, None if malformed."""
    if words in ("", NONE):
        return ()
    found = [source_of(part) for part in words.split("+")]
    parts = tuple(part for part in found if part is not None)
    names = {(part.words, way) for part in parts for way in part.ways("both")}
    each = sum(len(part.ways("both")) for part in parts)
    return parts if len(parts) == len(found) <= MOST_PARTS and len(names) == each else None


def read(value: object) -> str | None:
    """Return a background in its canonical notation; None if malformed."""
    parts = sources_of(value) if isinstance(value, str) else None
    return None if parts is None else JOIN.join(part.name for part in parts) or NONE


EXPECTED = (
    '"none", or up to four different parts with " + " between them: "udp 10Mbit/s" ("burst 20" behind it: so many '
    'packets leave together), "stream 100pps EF" (small packets, whose delay is measured), "tcp 4 cubic", '
    '"web 10 x 100kB every 1s"; each with "up", "down" or "both" behind it where it goes another way than the flows'
)
BACKGROUND = Reader(read, EXPECTED)
