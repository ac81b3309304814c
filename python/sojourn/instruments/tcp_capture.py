"""tcpdump on a host's own port, for the packets of TCP: an independent capture, packet by packet.

Large packets are captured as the kernel passes them to the port, as in the log. Its timestamps are the kernel's, on
CLOCK_REALTIME, and are converted to CLOCK_TAI. Does not know the sender.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from sojourn.instruments.capture import (
    GRACE_SECONDS,
    await_listening,
    captured,
    said_at_end,
    tcpdump_argv,
)
from sojourn.instruments.ping import pinned
from sojourn.records.pcap import tcp_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName
    from sojourn.records.pcap import Segment

SNAP_BYTES = "128"
HOST: HostName = "a"


class TcpCapture:
    """A running tcpdump on one port of host A, for the connections to one TCP port."""

    def __init__(self, bed: Bed, dev: str, port: int, file: Path, cpu: int | None) -> None:
        self.file, self._port, self._bed = file, port, bed
        argv = [*tcpdump_argv(bed, "a", dev)[:-1], f"tcp port {port}"]
        argv[argv.index("-s") + 1] = SNAP_BYTES
        argv[argv.index("-B") + 1] = "65536"
        with file.open("wb") as output:
            self._process = bed.backend.start(
                HOST, [*pinned(bed, HOST, cpu), *argv], stdout=output, stderr=subprocess.PIPE
            )
        await_listening(self._process)

    def stop(self, block: int) -> tuple[list[dict[str, Any]], int]:
        """End it, after all received packets are in the file; return its packets, and the kernel's drops."""
        if self._process.poll() is None:
            time.sleep(GRACE_SECONDS)
            self._process.send_signal(signal.SIGINT)
        said = said_at_end(self._process)
        rows = list(read_segments(self.file, self._port, block, self._bed.backend.tai_offset_ns(HOST)))
        self.file.unlink()
        dropped = re.search(r"(\d+) packets? dropped by kernel", said)
        return rows, int(dropped[1]) if dropped else 0

    def kill(self) -> None:
        """Kill it; one that has ended is left alone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
            self.file.unlink(missing_ok=True)


def read_segments(path: Path, server_port: int, block: int, tai_ns: int) -> Iterator[dict[str, Any]]:
    """Return the TCP segments of a capture at the client of `server_port`; an incomplete last one is left out."""
    for packet in captured(path):
        if segment := tcp_of(packet):
            yield {"block": block, "captured_ns": (packet.at_ns or 0) + tai_ns} | row(segment, server_port)


def row(segment: Segment, server_port: int) -> dict[str, Any]:
    """Return the headers of a segment, from the client's point of view."""
    outward = segment.dport == server_port
    return {
        "direction": "out" if outward else "in",
        "local_port": segment.sport if outward else segment.dport,
        "remote_port": segment.dport if outward else segment.sport,
        "seq": segment.seq,
        "ack": segment.ack,
        "tcp_flags": segment.flags,
        "window": segment.window,
        "packet_bytes": segment.packet_bytes,
        "payload_bytes": segment.payload_bytes,
    }
