"""Captures: read pcap and pcapng, find TCP segments in them, and write pcapng with comments on packets.

The only reader of captures here. Each block keeps its octets: unknown ones are written back unchanged. A pcap file is
read as one section with one interface. Headers after Ethernet (with VLAN tags), Linux cooked captures, raw IP and
loopback are parsed. Why not a library: docs/decisions/0023-formats-of-tcp-logs.md.

Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, https://www.tcpdump.org/linktypes.html.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D_0D0A, 1, 5, 6
BYTE_ORDER = 0x1A2B_3C4D
COMMENT, RESOLUTION, OFFSET = 1, 9, 14
DROPPED = (5, 7)
"""Options of interface statistics: packets dropped by the interface (isb_ifdrop), and by the OS (isb_osdrop)."""

LONGEST_BLOCK = 1 << 24
LEAST_PACKET = 32
"""Octets of a packet block with an empty packet."""

PCAP = {0xA1B2_C3D4: 1000, 0xA1B2_3C4D: 1}
"""Magic numbers, each with the unit of fractions of a second, in ns."""

NULL, ETHERNET, LOOP, RAW, COOKED, IPV4, IPV6, COOKED2 = 0, 1, 108, 101, 113, 228, 229, 276
RAWS = {RAW, IPV4, IPV6, 12, 14}
VLAN_TYPES = {0x8100, 0x88A8, 0x9100}
IP_TYPES = {0x0800, 0x86DD}
EXTENSIONS = {0, 43, 60}
"""IPv6 extension headers with a length field: hop-by-hop, routing, destination options."""

FRAGMENT, TCP = 44, 6


class Segment(NamedTuple):
    """The headers of a TCP segment. Addresses are hexadecimal digits; lengths are those on the wire."""

    source: str
    sport: int
    destination: str
    dport: int
    seq: int
    ack: int
    flags: int
    payload_bytes: int
    ip_id: int
    """IPv4's identification; 0 for IPv6."""
    window: int
    packet_bytes: int
    """The length of the IP packet."""
    options: bytes = b""
    """The TCP options, as far as they were captured."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a capture; for a packet, with its time (ns, UTC) and link type."""

    octets: bytes
    order: str
    """The byte order of its numbers: < or >."""
    kind: int
    at_ns: int | None = None
    link: int = 0
    packet: bytes = b""
    original: int = 0
    """The packet's length on the wire; `packet` may be shorter."""


@dataclass(slots=True)
class _Interface:
    link: int
    per_second: int
    offset_s: int


class CutError(RequestError):
    """The capture ends within a packet."""


def read_capture(path: Path) -> Iterator[Block]:
    """Return every block in order; a pcap file is converted to pcapng."""
    if not path.is_file():
        raise RequestError(f"{path} is no file: name a capture that tcpdump or Wireshark saved")
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic == SECTION.to_bytes(4, "big"):
            yield from _pcapng(file, path)
        else:
            yield from _pcap(file, path)


def read_packets(path: Path) -> Iterator[Block]:
    """Return the packets of a capture; an incomplete last one, as of a stopped tcpdump, is left out."""
    try:
        yield from (block for block in read_capture(path) if block.at_ns is not None)
    except CutError:
        return


def dropped_of(block: Block) -> int | None:
    """Return the dropped packets in a block of interface statistics; None for other blocks."""
    if block.kind != STATISTICS:
        return None
    lost, at = 0, 20
    while at + 4 <= len(block.octets) - 4:
        code, length = struct.unpack_from(f"{block.order}HH", block.octets, at)
        if code == 0:
            break
        if code in DROPPED and length == 8:
            lost += struct.unpack_from(f"{block.order}Q", block.octets, at + 4)[0]
        at += 4 + _padded(length)
    return lost


def has_nanoseconds(path: Path) -> bool:
    """Return whether a pcap file's timestamps are in nanoseconds."""
    with path.open("rb") as file:
        magic = file.read(4)
    return any(PCAP.get(int.from_bytes(magic, order)) == 1 for order in ("little", "big"))


def write_block(file: BinaryIO, block: Block, comment: str | None) -> None:
    """Write a block unchanged, or with one more comment."""
    if comment is None:
        file.write(block.octets)
        return
    order, octets = block.order, block.octets
    captured = struct.unpack_from(f"{order}I", octets, 20)[0]
    at = 28 + _padded(captured)
    options = octets[at:-4]
    text = comment.encode()[:0xFFFF]
    option = struct.pack(f"{order}HH", COMMENT, len(text)) + text.ljust(_padded(len(text)), b"\0")
    options = option + (options or bytes(4))
    length = at + len(options) + 4
    head = octets[:4] + struct.pack(f"{order}I", length) + octets[8:at]
    file.write(head + options + struct.pack(f"{order}I", length))


def tcp_of(block: Block) -> Segment | None:
    """Return the TCP segment of a packet; None for other packets, for those cut short, and for all but the first
    fragment."""
    if block.at_ns is None:
        return None
    try:
        found = _network(block)
        return None if found is None else _ip(block, *found)
    except (struct.error, IndexError):
        return None


def _pcapng(file: BinaryIO, path: Path) -> Iterator[Block]:
    order = "<"
    interfaces: list[_Interface] = []
    while head := file.read(8):
        kind = struct.unpack(f"{order}I", head[:4])[0] if len(head) == 8 else 0
        if kind == SECTION:
            magic = file.read(4)
            order = ">" if magic == BYTE_ORDER.to_bytes(4, "big") else "<"
            head += magic
            interfaces = []
        length = struct.unpack(f"{order}I", head[4:8])[0] if len(head) >= 8 else 0
        octets = head + file.read(max(0, min(length, LONGEST_BLOCK) - len(head)))
        if length < 12 or length % 4 or len(octets) != length or octets[-4:] != octets[4:8]:
            raise CutError(f"{path} is damaged or cut: a block of it is not whole")
        if kind == INTERFACE:
            interfaces.append(_interface(octets, order))
        yield _packet(octets, order, interfaces, path) if kind == PACKET else Block(octets, order, kind)


def _interface(octets: bytes, order: str) -> _Interface:
    found = _Interface(struct.unpack_from(f"{order}H", octets, 8)[0], 1_000_000, 0)
    at = 16
    while at + 4 <= len(octets) - 4:
        code, length = struct.unpack_from(f"{order}HH", octets, at)
        value = octets[at + 4 : at + 4 + length]
        if code == RESOLUTION and length == 1:
            power = value[0] & 0x7F
            found.per_second = 2**power if value[0] & 0x80 else 10**power
        elif code == OFFSET and length == 8:
            found.offset_s = struct.unpack(f"{order}q", value)[0]
        elif code == 0:
            break
        at += 4 + _padded(length)
    return found


def _packet(octets: bytes, order: str, interfaces: list[_Interface], path: Path) -> Block:
    if len(octets) < LEAST_PACKET:
        raise RequestError(f"{path} is damaged: the block of a packet is too short for one")
    number, high, low, captured, original = struct.unpack_from(f"{order}5I", octets, 8)
    if number >= len(interfaces) or 28 + _padded(captured) + 4 > len(octets):
        raise RequestError(f"{path} is damaged: a packet is of no interface, or longer than its block")
    interface = interfaces[number]
    at_ns = (high << 32 | low) * 10**9 // interface.per_second + interface.offset_s * 10**9
    return Block(octets, order, PACKET, at_ns, interface.link, octets[28 : 28 + captured], original)


def _pcap(file: BinaryIO, path: Path) -> Iterator[Block]:
    """Convert a pcap file: its header becomes a section and an interface with ns timestamps, each record a packet."""
    head = file.read(24)
    orders = {order: int.from_bytes(head[:4], order) for order in ("little", "big")}
    order = next((mark for mark, name in (("<", "little"), (">", "big")) if orders[name] in PCAP), None)
    if order is None or len(head) < 24:
        raise RequestError(f"{path} is no capture: it begins neither as pcap nor as pcapng")
    unit_ns = PCAP[orders["little" if order == "<" else "big"]]
    snapshot, link = struct.unpack_from(f"{order}II", head, 16)
    link &= 0xFFFF
    section = struct.pack(f"{order}IIIHHqI", SECTION, 28, BYTE_ORDER, 1, 0, -1, 28)
    yield Block(section, order, SECTION)
    options = struct.pack(f"{order}HHB3xHH", RESOLUTION, 1, 9, 0, 0)
    interface = struct.pack(f"{order}IIHHI", INTERFACE, 32, link, 0, snapshot) + options
    yield Block(interface + struct.pack(f"{order}I", 32), order, INTERFACE)
    while record := file.read(16):
        seconds, fraction, captured, original = struct.unpack(f"{order}4I", record.ljust(16, b"\0"))
        octets = file.read(min(captured, LONGEST_BLOCK))
        if len(record) < 16 or len(octets) != captured:
            raise CutError(f"{path} is damaged or cut: its last packet is not whole")
        at_ns = seconds * 10**9 + fraction * unit_ns
        length = 32 + _padded(captured)
        numbers = struct.pack(f"{order}7I", PACKET, length, 0, at_ns >> 32, at_ns & 0xFFFF_FFFF, captured, original)
        block = numbers + octets.ljust(_padded(captured), b"\0") + struct.pack(f"{order}I", length)
        yield Block(block, order, PACKET, at_ns, link, octets, original)


def _padded(length: int) -> int:
    return (length + 3) & ~3


def _network(block: Block) -> tuple[int, int] | None:
    """Return the offset of the IP header, and its version."""
    packet = block.packet
    if block.link == ETHERNET:
        at, kind = 14, struct.unpack_from(">H", packet, 12)[0]
        while kind in VLAN_TYPES:
            at, kind = at + 4, struct.unpack_from(">H", packet, at + 2)[0]
    elif block.link in {COOKED, COOKED2}:
        at, kind = (
            (16, struct.unpack_from(">H", packet, 14)[0])
            if block.link == COOKED
            else (
                20,
                struct.unpack_from(">H", packet, 0)[0],
            )
        )
    elif block.link in {NULL, LOOP}:
        at, kind = 4, 0x0800
    elif block.link in RAWS:
        at, kind = 0, 0x0800
    else:
        return None
    return (at, packet[at] >> 4) if kind in IP_TYPES else None


def _ip(block: Block, at: int, version: int) -> Segment | None:
    """Return the TCP segment whose IP header is at `at`. A length of 0 means a packet of more than 64 KiB (BIG TCP)."""
    packet = block.packet
    if version == 4:
        length, identification, fragment = struct.unpack_from(">HHH", packet, at + 2)
        if packet[at + 9] != TCP or fragment & 0x1FFF:
            return None
        header, kind = (packet[at] & 0xF) * 4, 4
        source, destination = packet[at + 12 : at + 16], packet[at + 16 : at + 20]
        whole = length or block.original - at
    elif version == 6:
        length, following = struct.unpack_from(">HB", packet, at + 4)
        header, kind, identification = 40, 16, 0
        source, destination = packet[at + 8 : at + 24], packet[at + 24 : at + 40]
        while following in EXTENSIONS:
            following, more = packet[at + header], (packet[at + header + 1] + 1) * 8
            header += more
        if following != TCP:
            return None
        whole = length + 40 if length else block.original - at
    else:
        return None
    if len(source) != kind or len(destination) != kind:
        return None
    sport, dport, seq, ack, bits, window = struct.unpack_from(">HHIIHH", packet, at + header)
    payload = whole - header - (bits >> 12) * 4
    ends = (source.hex(), sport, destination.hex(), dport)
    options = packet[at + header + 20 : at + header + (bits >> 12) * 4]
    return Segment(*ends, seq, ack, bits & 0xFFF, payload, identification, window, whole, options)
