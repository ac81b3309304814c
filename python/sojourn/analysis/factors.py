"""The factors that vary between cells: probe, size, pace, and for streams the destination; their names for people."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sojourn.analysis.wording import US, percent

if TYPE_CHECKING:
    from collections.abc import Iterable

IPV4_OVERHEAD, IPV6_OVERHEAD, RAW_OVERHEAD = 46, 66, 18
"""Frame bytes over payload bytes: 14 Ethernet + 20 or 40 IP + 8 UDP or ICMP + 4 FCS; raw has only Ethernet's."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a cell; in pooled rows those that vary are None."""

    probe: str | None = None
    schedule: str | None = None
    icmp_bytes: int | None = None
    payload_bytes: int | None = None
    response_payload_bytes: int | None = None
    frame_bytes: int | None = None
    response_frame_bytes: int | None = None
    interval_ns: int | None = None
    kind: str | None = None
    engine: str | None = None
    rate_pps: float | None = None
    rate_share: float | None = None
    to: str | None = None
    senders: int | None = None
    receivers: int | None = None
    load: float | None = None
    load_via: str | None = None
    pipe: str | None = None

    @property
    def mean_frame_bytes(self) -> float:
        """The mean of request and response frame: the size for which half a round trip is one way."""
        return ((self.frame_bytes or 0) + (self.response_frame_bytes or 0)) / 2

    @property
    def is_stream(self) -> bool:
        """Whether the cell is of streams, not of probes."""
        return self.engine is not None

    def describe(self) -> str:
        """Return the cell in words: "icmp, 64 B, 1 ms"; "packet, 64 B, poisson 100 µs, load 50 % through"."""
        if self.is_stream:
            return _describe_stream(self)
        size = f"{self.icmp_bytes} B of ICMP" if self.icmp_bytes is not None else f"{self.payload_bytes} B"
        if self.icmp_bytes is None and self.payload_bytes != self.response_payload_bytes:
            size += f" and back {self.response_payload_bytes} B"
        pace = "closed loop" if self.schedule == "closed-loop" else spell_interval(self.interval_ns or 0)
        return f"{self.probe}, {size}, {pace}"


def factors_of(block: dict[str, Any], plan: dict[str, Any]) -> Factors:
    """Return the factors of a cell, from the record of any of its blocks."""
    probe = _probe_name(block, plan)
    payload = int(block["request_payload_bytes"])
    return Factors(
        probe=probe,
        schedule=str(block["schedule"]),
        icmp_bytes=payload + 8 if str(block["kind"]) == "icmp" else None,
        payload_bytes=payload,
        response_payload_bytes=int(block["response_payload_bytes"]),
        frame_bytes=int(block["request_frame_bytes"]),
        response_frame_bytes=int(block["response_frame_bytes"]),
        interval_ns=int(block["interval_ns"]),
    )


def factors_of_stream(told: dict[str, Any]) -> Factors:
    """Return the factors of a cell of streams from the log; unknown names are left out."""
    known = {one.name: told[one.name] for one in fields(Factors) if told.get(one.name) is not None}
    if not known.get("pipe"):
        known.pop("pipe", None)
    known["engine"] = str(known.get("engine", "auto"))
    known["probe"] = str(known.get("probe") or _stream_name(known))
    if "interval_ns" not in known and known.get("rate_pps"):
        known["interval_ns"] = round(1e9 / float(known["rate_pps"]))
    return Factors(**known)


def in_common(cells: Iterable[Factors]) -> Factors:
    """Return the factors on which all cells agree; the others are None."""
    several = list(cells)
    if not several:
        return Factors()
    agreed: dict[str, Any] = {}
    for one in fields(Factors):
        values = {getattr(cell, one.name) for cell in several}
        agreed[one.name] = values.pop() if len(values) == 1 else None
    return Factors(**agreed)


def spell_interval(interval_ns: int) -> str:
    """Return an interval in the unit that makes it a whole number: "1 ms", "500 µs"."""
    for unit, size in (("s", 10**9), ("ms", 10**6), (US, 10**3)):
        if interval_ns >= size and interval_ns % size == 0:
            return f"{interval_ns // size} {unit}"
    return f"{interval_ns} ns"


def _stream_name(known: dict[str, Any]) -> str:
    """Return the probe of a stream's row: its engine, and its kind if not one-way: "packet/request-response"."""
    kind = known.get("kind")
    return str(known["engine"]) if kind in (None, "one-way") else f"{known['engine']}/{kind}"


def _describe_stream(factors: Factors) -> str:
    kind = str(factors.probe).removeprefix("auto").removeprefix("/")
    parts = [*([kind] if kind else []), f"{factors.frame_bytes} B", spell_schedule(factors)]
    if factors.to not in (None, "unicast"):
        parts.append(f"to {factors.to}")
    if (factors.senders or 1) > 1:
        parts.append(f"{factors.senders} senders")
    if factors.receivers:
        parts.append(f"{factors.receivers} other receivers")
    if factors.load:
        parts.append(f"load {percent(factors.load)} {factors.load_via or 'through'}")
    if factors.pipe:
        parts.append(factors.pipe)
    return ", ".join(parts)


def spell_schedule(factors: Factors) -> str:
    """Return the schedule of a stream: "flood", "closed loop", "poisson 100 µs", "ramp:1000-2000"."""
    if factors.schedule == "closed-loop":
        return "closed loop"
    paced = factors.interval_ns or factors.rate_share is not None
    return f"{factors.schedule} {spell_pace(factors)}" if paced else str(factors.schedule)


def spell_pace(factors: Factors) -> str:
    """Return the configured pace of a stream: "100 µs", "at 50 % of the throughput"."""
    if factors.rate_share is not None and factors.rate_pps is None:
        return f"at {percent(factors.rate_share)} of the throughput"
    return spell_interval(factors.interval_ns or 0)


def _probe_name(block: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return the plan's name of the probe: "icmp", "raw/ping-pong", "udp6/request-response"."""
    kind = str(block["kind"])
    if block["via"] == "sim":
        asked = plan.get("probe", {}).get("probe", [])
        same = [str(one) for one in asked if str(one).rpartition("/")[2] == kind]
        if len(same) == 1:
            return same[0]
    overhead = int(block["request_frame_bytes"]) - int(block["request_payload_bytes"])
    ipv6 = overhead == IPV6_OVERHEAD
    if kind == "icmp":
        return "icmp6" if ipv6 else "icmp"
    if block["via"] == "packet" or (block["via"] == "sim" and overhead == RAW_OVERHEAD):
        return f"raw/{kind}"
    return f"{'udp6' if ipv6 else 'udp'}/{kind}"
