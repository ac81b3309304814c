"""Writes a capture of 3000 datagrams of many sizes, 50 µs apart: what `computed` sends through the emulator."""

from __future__ import annotations

import struct
import sys
from pathlib import Path


def write(path: Path) -> None:
    """In pcap with nanoseconds."""
    octets = [struct.pack("<IHHiIII", 0xA1B2_3C4D, 2, 4, 0, 0, 262_144, 1)]
    for number in range(3000):
        data = number.to_bytes(4) + bytes(number % 1200)
        udp = struct.pack(">HHHH", 4000, 9, 8 + len(data), 0) + data
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), number, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
        frame = b"\2\0\0\0\0\2\2\0\0\0\0\1\x08\0" + ip + udp
        octets += [struct.pack("<IIII", 1_700_000_000, 50_000 * number, len(frame), len(frame)), frame]
    path.write_bytes(b"".join(octets))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
