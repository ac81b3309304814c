"""An independent capture at the B side: tcpdump with the kernel's nanosecond timestamps, converted to records later.

Only echo requests, only the first 64 bytes. Does not know the sender: a frame belongs to the block that was running
when it arrived. The conversion waits until the measurement is over.
"""

from __future__ import annotations

import signal
import struct
import subprocess
import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from sojourn.bed.bounded import SilentError, TooLongError, line_of, outputs_of
from sojourn.errors import MachineError
from sojourn.instruments.ping import pinned
from sojourn.records import arrow_schema
from sojourn.records.pcap import has_nanoseconds, read_packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sojourn.bed import Bed
    from sojourn.bed.hosts import HostName
    from sojourn.records.pcap import Block

PCAP_HEADER = 24
READY_SECONDS = 10.0
GRACE_SECONDS = 0.2
"""The time of the last frame from the kernel's buffer to the file."""


class Frame(NamedTuple):
    """One captured echo request."""

    arrival_ns: int
    frame_bytes: int
    icmp_id: int
    icmp_seq: int


class Window(NamedTuple):
    """The time in which a block was sent, in TAI of the host that captures."""

    block: int
    started_ns: int
    ended_ns: int


class Capture:
    """A running tcpdump on one interface of the B side."""

    def __init__(self, bed: Bed, host: HostName, dev: str, file: Path, cpu: int | None) -> None:
        self.file, self._tai_ns = file, bed.backend.tai_offset_ns(host)
        argv = [*pinned(bed, host, cpu), *tcpdump_argv(bed, host, dev)]
        with file.open("wb") as output:
            self._process = bed.backend.start(host, argv, stdout=output, stderr=subprocess.PIPE)
        await_listening(self._process)

    def stop(self) -> None:
        """End it, after all received frames are in the file."""
        if self._process.poll() is None:
            time.sleep(GRACE_SECONDS)
            self._process.send_signal(signal.SIGINT)
        said_at_end(self._process)

    def frames(self) -> list[Frame]:
        """Return the captured frames, with times in the host's TAI."""
        return list(read_pcap(self.file, self._tai_ns))


def tcpdump_argv(bed: Bed, host: HostName, dev: str) -> list[str]:
    """Return tcpdump's command line; it writes to standard output, and so needs no write access to the records."""
    tcpdump = bed.backend.require_tool(host, "tcpdump", "tcpdump", "judges the senders")
    quick = ["--immediate-mode", "-U", "-B", "16384"]
    return [
        tcpdump,
        "-i",
        dev,
        "-n",
        "-p",
        "-s",
        "64",
        *quick,
        "--time-stamp-precision=nano",
        "-w",
        "-",
        ECHO_REQUEST,
    ]


def said_at_end(process: subprocess.Popen[bytes]) -> str:
    """Wait until a tcpdump that has been stopped has ended; return its error output."""
    try:
        return outputs_of(process, READY_SECONDS)[1]
    except SilentError:
        raise MachineError(f"tcpdump did not end within {READY_SECONDS:.0f} s") from None


ECHO_REQUEST = "icmp[icmptype] == icmp-echo"


def await_listening(process: subprocess.Popen[bytes]) -> None:
    """Wait until tcpdump reports that it listens."""
    assert process.stderr is not None
    said = b""
    deadline = time.monotonic() + READY_SECONDS
    while b"listening on" not in said:
        try:
            said += line_of(process.stderr.fileno(), deadline - time.monotonic()) + b"\n"
        except (SilentError, TooLongError, EOFError):
            process.kill()
            raise MachineError(why_not(said.decode(errors="replace").strip())) from None


def why_not(said: str) -> str:
    """Return the sentence for a tcpdump that ended at once."""
    if "Couldn't change to" in said:  # it drops root, and a user namespace has no user to change to
        return "tcpdump, which judges the senders, does not work in a user namespace: run this study as root"
    return f"tcpdump does not start: {said.splitlines()[-1] if said else 'it says nothing'}"


ETHERNET, FCS, LEAST_FRAME = 14, 4, 64


def captured(path: Path) -> Iterator[Block]:
    """Return the packets of our tcpdump's capture, with nanoseconds; an incomplete last one is left out."""
    if path.stat().st_size < PCAP_HEADER:
        return
    if not has_nanoseconds(path):
        raise MachineError(f"{path} has no nanosecond timestamps: this tcpdump is too old")
    yield from read_packets(path)


def read_pcap(path: Path, tai_ns: int) -> Iterator[Frame]:
    """Return the echo requests of a capture; `tai_ns` is added to its timestamps to give TAI."""
    for packet in captured(path):
        if frame := echo(packet.packet, (packet.at_ns or 0) + tai_ns, packet.original):
            yield frame


def echo(head: bytes, arrival_ns: int, length: int) -> Frame | None:
    """Return the echo request in a frame's first bytes; None for any other frame."""
    icmp = ETHERNET + (head[ETHERNET] & 0x0F) * 4 if len(head) > ETHERNET else len(head)
    if len(head) < icmp + 8 or head[icmp] != 8:
        return None
    identifier, sequence = struct.unpack_from("!HH", head, icmp + 4)
    return Frame(arrival_ns, max(LEAST_FRAME, length + FCS), identifier, sequence)


def write_captures(path: Path, frames: Sequence[Frame], windows: Sequence[Window]) -> int:
    """Write the frames of each block as records, one batch per block; return their number."""
    schema = arrow_schema("captures", "tcpdump")
    written = 0
    ordered = sorted(frames)
    stamps = [frame.arrival_ns for frame in ordered]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for window in windows:
            inside = ordered[bisect_left(stamps, window.started_ns) : bisect_right(stamps, window.ended_ns)]
            rows = [{"block": window.block} | frame._asdict() for frame in inside]
            arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
            stream.write_batch(pa.record_batch(arrays, schema=schema))
            written += len(inside)
    return written
