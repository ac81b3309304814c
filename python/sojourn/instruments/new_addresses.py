"""Send frames with ever new source addresses from one interface, at the maximum rate or a given one; print the times.

A program of its own, started on a host of the bed: `new_addresses.py DEV COUNT RATE_PPS DESTINATION_MAC`, with rate 0
for the maximum rate. Imports nothing of Sojourn, so that it starts at once.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

ETHERTYPE = 0x88B7
"""An EtherType for local experiments; neither probes nor streams use it."""

PREFIX = b"\x02\x78"
"""The prefix of addresses that nothing else here uses: 02:78:<number in 32 bits>."""

SEND_BUFFER = 4 << 20


def main() -> None:
    """Send, and print one JSON object."""
    dev, count, rate, to = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    destination = bytes.fromhex(to.replace(":", ""))
    frames = [frame(destination, number) for number in range(count)]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        port.bind((dev, 0))
        gap = 1e9 / rate if rate else 0.0
        began = time.monotonic_ns()
        for number, octets in enumerate(frames):
            due = began + number * gap
            while gap and time.monotonic_ns() < due:
                pass
            port.send(octets)
        took = time.monotonic_ns() - began
    print(json.dumps({"sent": count, "elapsed_ns": took}))


def frame(destination: bytes, number: int) -> bytes:
    """Return the shortest frame from one address."""
    return destination + PREFIX + struct.pack("!I", number) + struct.pack("!H", ETHERTYPE) + bytes(46)


if __name__ == "__main__":
    main()
