"""Parse the TCP segments in the frames of an emulator's log: addresses, ports, sequence number, length, IP
identification.

All rows are parsed at once. Supported: Ethernet with at most one VLAN tag, IPv4 or IPv6 without extension headers, TCP.
Other frames and fragments are left out. An address is its octets in hexadecimal digits, as in the other joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Octets = NDArray[np.uint8]
    Ints = NDArray[np.int64]

HEAD_BYTES = 128
VLAN, IPV4, IPV6, TCP = 0x8100, 0x0800, 0x86DD, 6
FOUND = ("source", "sport", "destination", "dport", "seq", "ack", "flags12", "payload_bytes", "ip_id")
SYN = 2
"""The SYN bit of `flags12`."""


def with_segments(packets: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose frame is a TCP segment, with the columns of FOUND."""
    heads = packets["head"].to_list()
    return plain_segments(packets, heads)


def plain_segments(packets: pl.DataFrame, heads: Sequence[bytes | None]) -> pl.DataFrame:
    """Return the same, with the first bytes of the frames in a separate sequence."""
    if not heads:
        return packets.with_columns(pl.lit(None, _kind(name)).alias(name) for name in FOUND)
    octets = np.frombuffer(b"".join((one or b"")[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0") for one in heads), np.uint8)
    found, is_tcp = _parsed(octets.reshape(len(heads), HEAD_BYTES))
    columns = [pl.Series(name, values, _kind(name)) for name, values in found.items()]
    return packets.with_columns(columns).filter(pl.Series(is_tcp))


def _kind(name: str) -> pl.DataType:
    return pl.String() if name in {"source", "destination"} else pl.Int64()


def _parsed(octets: Octets) -> tuple[dict[str, Ints | list[str]], NDArray[np.bool_]]:
    """Return the columns of FOUND, and which rows are TCP segments."""
    rows = np.arange(len(octets))
    ip = np.where(_number(octets, 12 + np.zeros_like(rows), 2) == VLAN, 18, 14)
    kind = _number(octets, ip - 2, 2)
    is_4, is_6 = kind == IPV4, kind == IPV6
    tcp = ip + np.where(is_4, (octets[rows, ip] & 15).astype(np.int64) * 4, 40)
    protocol = octets[rows, ip + np.where(is_4, 9, 6)]
    is_part = is_4 & (_number(octets, ip + 6, 2) & 0x3FFF > 0)
    octets_of_ip = np.where(is_4, _number(octets, ip + 2, 2), _number(octets, ip + 4, 2) + 40)
    header = _number(octets, tcp + 12, 1) // 16 * 4
    payload = octets_of_ip - (tcp - ip) - header
    is_tcp = (is_4 | is_6) & (protocol == TCP) & ~is_part & (header >= 20) & (payload >= 0)
    source, destination = np.where(is_4, ip + 12, ip + 8), np.where(is_4, ip + 16, ip + 24)
    return {
        "source": _addresses(octets, source, is_4),
        "sport": _number(octets, tcp, 2),
        "destination": _addresses(octets, destination, is_4),
        "dport": _number(octets, tcp + 2, 2),
        "seq": _number(octets, tcp + 4, 4),
        "ack": _number(octets, tcp + 8, 4),
        "flags12": _number(octets, tcp + 12, 2) & 0x0FFF,
        "payload_bytes": payload,
        "ip_id": np.where(is_4, _number(octets, ip + 4, 2), 0),
    }, is_tcp


def _number(octets: Octets, at: Ints, length: int) -> Ints:
    """Return a number in network byte order, at each row's own offset."""
    rows, value = np.arange(len(octets)), np.zeros(len(octets), np.int64)
    for step in range(length):
        value = value * 256 + octets[rows, np.minimum(at + step, HEAD_BYTES - 1)]
    return value


def _addresses(octets: Octets, at: Ints, is_4: NDArray[np.bool_]) -> list[str]:
    return [
        row[place : place + (4 if short else 16)].tobytes().hex()
        for row, place, short in zip(octets, at.tolist(), is_4.tolist(), strict=True)
    ]
