"""The kinds of sizes in one place: payload, ICMP message and frame (with its 4 bytes of FCS, at least 64).

Knows headers, not probes in flight. A payload larger than the MTU is valid in IP: it is sent as fragments.
"""

from __future__ import annotations

from typing import NamedTuple

ETHERNET = 14 + 4
LEAST_FRAME = 64
ICMP_HEADER = 8


class Kind(NamedTuple):
    """One kind of probe: its names in the instrument, and the size of its headers."""

    via: str
    kind: str
    ip_version: int | None
    headers: int
    """Bytes between the Ethernet header and the payload."""
    least_payload: int


KINDS: dict[str, Kind] = {
    "icmp": Kind("icmp", "icmp", 4, 20 + ICMP_HEADER, 0),
    "icmp6": Kind("icmp", "icmp", 6, 40 + ICMP_HEADER, 0),
    "raw/ping-pong": Kind("packet", "ping-pong", None, 0, 46),
    "raw/request-response": Kind("packet", "request-response", None, 0, 46),
    "udp/ping-pong": Kind("udp", "ping-pong", 4, 20 + 8, 40),
    "udp/request-response": Kind("udp", "request-response", 4, 20 + 8, 40),
    "udp6/ping-pong": Kind("udp", "ping-pong", 6, 40 + 8, 40),
    "udp6/request-response": Kind("udp", "request-response", 6, 40 + 8, 40),
}


def payload_of(probe: str, size_key: str, size: int) -> int:
    """Return the user data of a probe from a size of kind `size_key`; negative if the size is too small."""
    kind = KINDS[probe]
    if size_key == "icmp_bytes":
        return size - ICMP_HEADER
    if size_key == "frame_bytes":
        return size - kind.headers - ETHERNET
    return size


def frame_of(probe: str, payload_bytes: int) -> int:
    """Return the frame on the wire, padded to at least 64; for fragments, that of a single frame without a limit."""
    return max(LEAST_FRAME, payload_bytes + KINDS[probe].headers + ETHERNET)


def exceeds_mtu(probe: str, payload_bytes: int, mtu: int) -> bool:
    """Return whether it needs more than one frame."""
    return payload_bytes + KINDS[probe].headers > mtu


class Engine(NamedTuple):
    """The sender of a stream, and the size of its headers."""

    headers: int
    least_payload: int


ENGINES: dict[str, Engine] = {
    "auto": Engine(0, 46),
    "packet": Engine(0, 46),
    "udp": Engine(20 + 8, 40),
    "udp6": Engine(40 + 8, 40),
    "tcp": Engine(20 + 20, 40),
    "xdp": Engine(0, 46),
    "live": Engine(0, 46),
}
"""Streams: raw frames, UDP, or messages over TCP, whose segments have no options (no timestamps).

The stream's own header is the first 40 bytes of the payload; a message over TCP has none, but is at least that long.
"""

VLAN_TAG = 4


def stream_payload(engine: str, size_key: str, size: int, *, tagged: bool = False) -> int:
    """Return the user data of a stream's frame from a size of kind `size_key`."""
    return size - stream_overhead(engine, tagged=tagged) if size_key == "frame_bytes" else size


def stream_frame(engine: str, payload_bytes: int, *, tagged: bool = False) -> int:
    """Return its frame size, with FCS, padded to at least 64."""
    return max(LEAST_FRAME, payload_bytes + stream_overhead(engine, tagged=tagged))


def stream_overhead(engine: str, *, tagged: bool) -> int:
    """Return the bytes of a frame that are not user data."""
    return ETHERNET + VLAN_TAG * tagged + ENGINES[engine].headers
