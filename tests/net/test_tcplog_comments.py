"""Comments in captures on both sides of our emulator: nearly every data packet has one, and none a wrong one.

The judge is apart from what writes the comments: tshark reads the packets, and of the log the one sample that a comment
names is looked up. Its bytes have to be the packet's, and its IP identification, counted up within a super-packet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pytest

from sojourn.export import Request, convert
from sojourn.instruments import find_instrument
from sojourn.records import read_table
from tests.net.busy_machine import await_that
from tests.net.faulty_path import faulty_bed
from tests.net.tcplog_bed import B4, B6, PORT, Bed, logging

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name"),
    pytest.mark.skipif(shutil.which("tcpdump") is None, reason="no tcpdump on this machine"),
    pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark here: scripts/setup.sh test installs it"),
]

PIPE = "rate 20Mbit/s delay 5ms queue 100 loss 1% reorder 1%"
BYTES = 4_000_000
LEAST_SHARE = 0.999
COMMENT = re.compile(
    r"tcplog (in|out), flow (\d+) packet (\d+)(?:, bytes (\d+) to (\d+) of the \d+ of a super-packet)?"
)


class Seen(NamedTuple):
    """A captured packet with data."""

    at_ns: int
    seq: int
    length: int
    ip_id: int
    comment: str


def captured(bed: Bed, out: Path, family: int) -> None:
    """A transfer from a to b, its log at both ends in out/t, and what tcpdump saw: out/a.pcap, out/b.pcap."""
    (out / "e").mkdir(parents=True)
    instrument, to = find_instrument(), f"{B4}:{PORT}" if family == 4 else f"[{B6}]:{PORT}"
    asked = ("--forward", PIPE, "--backward", "delay 5ms", "--seed", "7", "--engine", "packet", "--log", out / "e")
    emulator = bed.start("box", instrument, "emulate", "run", "left", "right", "--json", "--control", out / "c", *asked)
    await_that((out / "c").exists, "the emulator is ready")
    shape = ("--immediate-mode", "-U", "-B", "65536", "--time-stamp-precision=nano", "-Z", "root", "tcp")
    dumps = [bed.start(host, "tcpdump", "-i", "p0", "-w", out / f"{host}.pcap", *shape) for host in "ab"]
    await_that(lambda: len(list(out.glob("*.pcap"))) == 2, "tcpdump is there")
    receiver = bed.start("b", instrument, "tcp", "receive", to, "--json")
    assert receiver.stdout is not None
    assert "listening" in receiver.stdout.readline()
    with logging(out / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        sender = bed.start("a", instrument, "tcp", "send", to, "--bytes", str(BYTES))
        assert sender.wait(60) == 0
        assert receiver.wait(60) == 0
        bed.await_rest()
        logger.end()
    for one in (*dumps, emulator):
        one.send_signal(2)
        assert one.wait(60) == 0


def read_by_tshark(capture: Path, family: int) -> list[Seen]:
    """The packets with data from a to b."""
    fields = ("frame.time_epoch", "tcp.seq_raw", "tcp.len", "ip.id" if family == 4 else "ipv6.plen", "frame.comment")
    wanted = f"tcp.dstport == {PORT} && tcp.len > 0"
    argv = ["tshark", "-r", str(capture), "-Y", wanted, "-T", "fields"]
    argv += [word for one in fields for word in ("-e", one)]
    told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    found = []
    for line in told.splitlines():
        at, seq, length, ip_id, comment = (*line.split("\t"), "")[:5]
        whole, _, part = at.partition(".")
        found.append(Seen(int(whole) * 10**9 + int(part.ljust(9, "0")), int(seq), int(length),
                          int(ip_id, 16) if family == 4 else 0, comment))  # fmt: skip
    return found


def wrong(packet: Seen, of: re.Match[str], sample: dict[str, int], family: int) -> str:
    """What of a packet is not its sample's; nothing where all is."""
    offset = (packet.seq - sample["seq"]) % 2**32
    if of[4] is None:
        same = (sample["seq"], sample["payload_bytes"]) == (packet.seq, packet.length)
        return "" if same and (family == 6 or sample["ip_id"] == packet.ip_id) else "not the packet of the sample"
    if (int(of[4]), int(of[5])) != (offset + 1, offset + packet.length):
        return "not the bytes that it names"
    if offset + packet.length > sample["payload_bytes"]:
        return "not within the super-packet"
    turn = offset // sample["mss_bytes"]
    return "" if family == 6 or (sample["ip_id"] + turn) % 65536 == packet.ip_id else "not that identification"


SHORT = {("off", 4), ("gro", 6), ("gso", 4)}
"""Each kind of offload, and both families; all six in `make proof`."""


@pytest.mark.parametrize(
    ("offloads", "family"),
    [
        pytest.param(*case, marks=() if case in SHORT else pytest.mark.proof)
        for case in product(("off", "gro", "gso"), (4, 6))
    ],
)
def test_packets_on_both_sides_of_the_emulator_are_annotated_with_their_own_sample(
    offloads: str, family: int, tmp_path: Path
) -> None:
    out = tmp_path / "x"
    with faulty_bed(family, offloads) as bed:
        captured(bed, out, family)
    samples = read_table(out / "t" / "records", "tcp_samples").frame.filter(pl.col("point").is_in(["in", "out"]))
    rows = {(row["point"], row["flow"], row["packet"]): row for row in samples.iter_rows(named=True)}
    many = {"a": 0, "b": 0}
    for host in "ab":
        convert(Request(out / "t", "pcapng", output=out / f"{host}.pcapng", capture=out / f"{host}.pcap"))
        packets = read_by_tshark(out / f"{host}.pcapng", family)
        assert sum(one.length for one in packets) >= BYTES * 0.98
        used: set[tuple[str, int, int, int]] = set()
        commented = 0
        for packet in packets:
            found = list(COMMENT.finditer(packet.comment))
            commented += bool(found)
            for of in found:
                key = (of[1], int(of[2]), int(of[3]))
                assert not wrong(packet, of, rows[key], family), (host, packet, rows[key])
                assert (*key, packet.seq) not in used, "a sample belongs to one packet"
                used.add((*key, packet.seq))
                many[host] += of[4] is not None or rows[key]["segments"] > 1
        assert commented >= LEAST_SHARE * len(packets), f"{host}: {commented} of {len(packets)}"
    if offloads == "off":
        assert many["a"] > 0, "super-packets of TCP leave in segments"
    else:
        assert many["b"] > 0, "packets of several segments are captured"
