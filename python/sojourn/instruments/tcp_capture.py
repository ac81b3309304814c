"""tcpdump at a host's own port, for what TCP sends and receives there: an independent witness, packet by packet.

Large packets are seen as the host's kernel hands them to the port, as the log sees them. Its stamps are the kernel's,
on CLOCK_REALTIME, and become CLOCK_TAI. Does not know what sent.
"""

from __future__ import annotations

import re
import signal
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Any

from sojourn.errors import MachineError
from sojourn.instruments.capture import (
    ETHERNET,
    MAGIC_NANO,
    READY_SECONDS,
    SETTLE_SECONDS,
    await_listening,
    tai_offset_ns,
    tcpdump_argv,
)
from sojourn.instruments.ping import pinned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sojourn.instruments.conversation import Start

SNAP_BYTES = "128"
IPV4, IPV6, TCP = 0x0800, 0x86DD, 6
FLAGS = 0x0FFF


class TcpCapture:
    """A running tcpdump on one port of a host, for the connections to one port of TCP."""

    def __init__(self, start: Start, dev: str, port: int, file: Path, cpu: int | None) -> None:
        self.file, self._port = file, port
        argv = [*tcpdump_argv(dev)[:-1], f"tcp port {port}"]
        argv[argv.index("-s") + 1] = SNAP_BYTES
        argv[argv.index("-B") + 1] = "65536"
        with file.open("wb") as output:
            self._process = start([*pinned(cpu), *argv], stdout=output, stderr=subprocess.PIPE)
        await_listening(self._process)

    def stop(self, block: int) -> tuple[list[dict[str, Any]], int]:
        """End it, once everything that came is in the file: its packets, and how many the kernel dropped before it."""
        if self._process.poll() is None:
            time.sleep(SETTLE_SECONDS)
            self._process.send_signal(signal.SIGINT)
        _, said = self._process.communicate(timeout=READY_SECONDS)
        rows = list(read_packets(self.file, self._port, block))
        self.file.unlink()
        dropped = re.search(rb"(\d+) packets? dropped by kernel", said)
        return rows, int(dropped[1]) if dropped else 0

    def kill(self) -> None:
        """End it at once; one that has ended is left alone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
            self.file.unlink(missing_ok=True)


def read_packets(path: Path, server_port: int, block: int) -> Iterator[dict[str, Any]]:
    """The TCP packets of a capture at the client of `server_port`; a cut tail is left out."""
    octets = path.read_bytes()
    if len(octets) < 24:
        return
    order = "<" if struct.unpack_from("<I", octets)[0] == MAGIC_NANO else ">"
    if struct.unpack_from(f"{order}I", octets)[0] != MAGIC_NANO:
        raise MachineError(f"{path} has no nanosecond stamps: this tcpdump is too old")
    record, tai_ns, at = struct.Struct(f"{order}IIII"), tai_offset_ns(), 24
    while at + record.size <= len(octets):
        seconds, nanos, kept, _ = record.unpack_from(octets, at)
        at += record.size
        if at + kept > len(octets):
            return
        if row := packet(octets, at, kept, server_port):
            yield {"block": block, "captured_ns": seconds * 1_000_000_000 + nanos + tai_ns} | row
        at += kept


def packet(octets: bytes, start: int, kept: int, server_port: int) -> dict[str, Any] | None:
    """What a TCP packet's headers say, seen from the client; None for anything else."""
    (kind,) = struct.unpack_from("!H", octets, start + 12)
    ip = start + ETHERNET
    if kind == IPV4 and octets[ip + 9] == TCP:
        header = (octets[ip] & 0x0F) * 4
        (whole,) = struct.unpack_from("!H", octets, ip + 2)
    elif kind == IPV6 and octets[ip + 6] == TCP:
        header = 40
        whole = 40 + struct.unpack_from("!H", octets, ip + 4)[0]
    else:
        return None
    tcp = ip + header
    if tcp + 20 > start + kept:
        return None
    source, target, seq, ack, bits, window = struct.unpack_from("!HHIIHH", octets, tcp)
    outward = target == server_port
    return {
        "direction": "out" if outward else "in",
        "local_port": source if outward else target,
        "remote_port": target if outward else source,
        "seq": seq,
        "ack": ack,
        "tcp_flags": bits & FLAGS,
        "window": window,
        "packet_bytes": whole,
        "payload_bytes": whole - header - (bits >> 12) * 4,
    }
