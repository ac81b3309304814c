"""What reads foreign bytes in Python: each target takes any bytes, and may refuse them in a sentence of ours, no more.

`tests/unit/test_foreign_bytes.py` tries mutated seeds in every test run; `scripts/fuzz.sh` searches by coverage.
"""

from __future__ import annotations

import json
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sojourn.bed.device_cpu import DeviceCpu
from sojourn.bed.state import Mark, State
from sojourn.conduct import counters
from sojourn.errors import SojournError
from sojourn.instruments import capture, conversation, tcp_capture
from sojourn.plan.load import load_plan
from sojourn.records import read_table
from sojourn.records.log import read_log
from sojourn.records.pcap import read_capture, tcp_of, write_block
from sojourn.records.reader import arrow_schema
from sojourn.studies import names, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Target:
    """What reads the bytes, and whole ones to begin with."""

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


def once(target: Target, octets: bytes) -> None:
    """One try. Any error but ours is a defect."""
    try:
        target.read(octets)
    except SojournError as error:
        sentence = str(error)
        if len(sentence) > 2000 or "\n" in sentence.strip():
            raise AssertionError(f"a refusal of {len(sentence)} characters: {sentence[:200]}") from error


def plan(octets: bytes) -> None:
    """A plan's file."""
    with _file(octets, "plan.toml") as path:
        load_plan(path)


def set_value(octets: bytes) -> None:
    """A value of `--set`."""
    load_plan("bridge-latency", sets=[octets.decode(errors="replace")])


def capture_file(octets: bytes) -> None:
    """A capture, read to its end, its TCP found, its packets written with a comment."""
    with _file(octets, "foreign.pcap") as path, (path.parent / "out").open("wb") as out:
        for block in read_capture(path):
            tcp_of(block)
            write_block(out, block, "fuzz" if block.at_ns is not None and block.packet else None)


def own_capture(octets: bytes) -> None:
    """What the conductor reads of a tcpdump's capture: echo requests, and TCP's segments."""
    with _file(octets, "own.pcap") as path:
        list(capture.read_pcap(path, 37))
        list(tcp_capture.read_segments(path, 5201, 0, 37))


def log_lines(octets: bytes) -> None:
    """A run's log."""
    with _file(octets, "log.jsonl") as path:
        read_log(path)


def records(octets: bytes) -> None:
    """A table of probes."""
    with _file(octets, "probes-000.arrow") as path:
        read_table(path.parent, "probes")


def answer(octets: bytes) -> None:
    """A line that an instrument says."""
    conversation.parse(octets)


def device_cpu(octets: bytes) -> None:
    """Where a device's packets are handled."""
    DeviceCpu.parse(octets.decode(errors="replace"))


def mark(octets: bytes) -> None:
    """The mark of a namespace, which anyone may have named."""
    Mark.parse(octets.decode(errors="replace"))


def state(octets: bytes) -> None:
    """A bed's state file, of which anyone with its folder could write another."""
    with _file(octets, "state.json") as path:
        try:
            State.read(path)
        except ValueError:
            return


def interface_counters(octets: bytes) -> None:
    """The kernel's table of interfaces, of which a name is foreign."""
    head = "Inter-|\n face |\n"
    counters.parse(head + "".join(f"{name}: " + "1 " * 16 + "\n" for name in octets.decode(errors="replace").split()))


class _file:  # noqa: N801
    """These bytes as a file in a folder of its own, removed afterwards."""

    def __init__(self, octets: bytes, name: str) -> None:
        self.octets, self.name = octets, name

    def __enter__(self) -> Path:
        self.folder = tempfile.TemporaryDirectory(dir=_MEMORY)
        path = Path(self.folder.name) / self.name
        path.write_bytes(self.octets)
        return path

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()


_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def _plans() -> list[bytes]:
    return [text(name).encode() for name in names()]


def _captures() -> list[bytes]:
    """A SYN over IPv4 as pcap and as pcapng, the former with nanoseconds, in either order of bytes."""
    tcp = struct.pack(">HHIIHHHH", 40000, 5201, 1, 0, 5 << 12 | 2, 64240, 0, 0)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 40, 7, 0, 64, 6, 0) + bytes([10, 0, 0, 1, 10, 0, 0, 2])
    frame = bytes(12) + b"\x08\x00" + head + tcp
    made = []
    for order in "<>":
        file = struct.pack(f"{order}IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
        made.append(file + struct.pack(f"{order}IIII", 1_700_000_000, 5, len(frame), len(frame)) + frame)
        section = struct.pack(f"{order}IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
        interface = struct.pack(f"{order}IIHHIHHB3xHHI", 1, 32, 1, 0, 0, 9, 1, 9, 0, 0, 32)
        padded = frame + bytes(-len(frame) % 4)
        length = 32 + len(padded)
        packet = struct.pack(f"{order}IIIIIII", 6, length, 0, 1, 2, len(frame), len(frame)) + padded
        made.append(section + interface + packet + struct.pack(f"{order}I", length))
    return made


def _tables() -> list[bytes]:
    schema = arrow_schema("probes", "fuzz")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for rows in (5, 3):
            columns = [pa.array([_of(field.type)] * rows, field.type) for field in schema]
            stream.write_batch(pa.record_batch(columns, schema=schema))
    return [sink.getvalue().to_pybytes()]


def _of(kind: pa.DataType) -> object:
    if pa.types.is_boolean(kind):
        return True
    return "a" if pa.types.is_string(kind) or pa.types.is_dictionary(kind) else 7


def _lines() -> list[bytes]:
    events = [
        {"event": "started", "time_ns": 1},
        {"event": "block", "arm": "wire", "deep": [[{}]]},
        {"event": "finished"},
    ]
    return ["".join(json.dumps(event) + "\n" for event in events).encode()]


CORPUS = Path(__file__).parent / "corpus" / "python"
TARGETS = {
    "plan": Target(plan, _plans),
    "set": Target(set_value, lambda: [b"rounds=20", b"devices=wire,bridge", b'probe.interval="250us"']),
    "capture": Target(capture_file, _captures),
    "own-capture": Target(own_capture, lambda: _captures()[::2]),
    "log": Target(log_lines, _lines),
    "records": Target(records, _tables),
    "answer": Target(answer, lambda: [b'{"event": "block", "rtt": {"p50_ns": 1}}\n']),
    "device-cpu": Target(device_cpu, lambda: [b"shared", b"loaded:50%"]),
    "mark": Target(mark, lambda: [b"run-1@123-456"]),
    "state": Target(state, lambda: [
        b'{"mark": "a@1-2", "boot": "b", "pids": "c", "holder": {"pid": 1, "started_ticks": 2}}'
    ]),
    "counters": Target(interface_counters, lambda: [b"eth0 veth1", b"a:b c"]),
}  # fmt: skip
"""By name; the seeds of each are its corpus, and what the search has found in `corpus/python/NAME`."""


def seeds(name: str) -> Iterator[bytes]:
    """Everything to begin with."""
    yield from TARGETS[name].seeds()
    for path in sorted((CORPUS / name).glob("*")):
        yield path.read_bytes()
