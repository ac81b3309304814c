"""What varies between cells: probe, size, interval, schedule. Names a cell for people and for the results table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

IPV4_OVERHEAD, IPV6_OVERHEAD, RAW_OVERHEAD = 46, 66, 18
"""Frame bytes over payload bytes: 14 Ethernet + 20 or 40 IP + 8 UDP or ICMP + 4 FCS; raw has only Ethernet's."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a cell; on pooled rows those that vary are None."""

    probe: str | None = None
    schedule: str | None = None
    icmp_bytes: int | None = None
    payload_bytes: int | None = None
    response_payload_bytes: int | None = None
    frame_bytes: int | None = None
    response_frame_bytes: int | None = None
    interval_ns: int | None = None

    @property
    def mean_frame_bytes(self) -> float:
        """The mean of request and response frame: the size at which half a round trip is one way."""
        return ((self.frame_bytes or 0) + (self.response_frame_bytes or 0)) / 2

    def describe(self) -> str:
        """The cell in a few words: "icmp, 64 B, 1 ms"."""
        size = f"{self.icmp_bytes} B of ICMP" if self.icmp_bytes is not None else f"{self.payload_bytes} B"
        if self.icmp_bytes is None and self.payload_bytes != self.response_payload_bytes:
            size += f" and back {self.response_payload_bytes} B"
        pace = self.schedule if self.schedule == "as-answered" else spell_interval(self.interval_ns or 0)
        return f"{self.probe}, {size}, {pace}"


def factors_of(block: dict[str, Any], plan: dict[str, Any]) -> Factors:
    """The factors of a cell, from the record of any block of it."""
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


def in_common(cells: Iterable[Factors]) -> Factors:
    """The factors on which all cells agree; the others are None."""
    several = list(cells)
    if not several:
        return Factors()
    agreed: dict[str, Any] = {}
    for one in fields(Factors):
        values = {getattr(cell, one.name) for cell in several}
        agreed[one.name] = values.pop() if len(values) == 1 else None
    return Factors(**agreed)


def spell_interval(interval_ns: int) -> str:
    """An interval as plans write it: "1ms", "500us"."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if interval_ns >= size and interval_ns % size == 0:
            return f"{interval_ns // size} {unit}"
    return f"{interval_ns} ns"


def _probe_name(block: dict[str, Any], plan: dict[str, Any]) -> str:
    """The plan's name of the probe: "icmp", "raw/ping-pong", "udp6/request-response"."""
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
