"""The timeline over real frames: calls, taps on both sides of an emulator, and an account that leaves nothing over.

The emulator drops, delays out of order and copies packets; taps are `sojourn capture` at the two hosts. What the
instruments say of the same segments has to agree to a packet.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.export import Chosen
from sojourn.instruments import find_instrument
from sojourn.records import read_table
from sojourn.timeline.segments import joined
from sojourn.timeline.source import open_flow
from tests.net.busy_machine import await_that
from tests.net.faulty_path import faulty_bed
from tests.net.tcplog_bed import B4, B6, PORT, Bed, logging

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

PATH = "rate 20Mbit/s delay 5ms queue 100"
PIPES = {"loss": f"{PATH} loss 2%", "order": f"{PATH} loss 1% reorder 3%", "copies": f"{PATH} duplicate 4%"}
CASES = [
    *((what, family, "off") for what in PIPES for family in (4, 6)),
    *((what, family, "gro") for what, family in (("loss", 4), ("order", 6), ("copies", 4))),
    *((what, family, "gso") for what, family in (("loss", 6), ("order", 4), ("copies", 6))),
]
SHORT = {("loss", 4, "off"), ("copies", 6, "off"), ("order", 6, "gro"), ("copies", 4, "gro"), ("loss", 6, "gso"),
         ("order", 4, "gso")}  # fmt: skip
"""Each path with both families and two kinds of offload, each kind of offload with both families."""
BYTES, MESSAGE = 1_500_000, 20_000
LONGEST_HEADERS = 14 + 40 + 60


def recorded(bed: Bed, pipe: str, out: Path, family: int = 4) -> None:
    """A transfer from a to b with every instrument: out/t, out/e, out/tap-a, out/tap-b, out/w."""
    out.mkdir()
    (out / "e").mkdir()
    instrument, to = find_instrument(), f"{B4}:{PORT}" if family == 4 else f"[{B6}]:{PORT}"
    asked = ("--forward", pipe, "--backward", PATH, "--seed", "5", "--engine", "packet")
    emulator = bed.start("box", instrument, "emulate", "run", "left", "right", "--json", "--control", out / "control",
                         *asked, "--log", out / "e")  # fmt: skip
    await_that((out / "control").exists, "the emulator is ready")
    shape = ("--headers", "--format", "pcapng")
    taps = [bed.start(host, instrument, "capture", "p0", "-o", out / f"tap-{host}", *shape) for host in "ab"]
    await_that(lambda: len(list(out.glob("tap-*/*.pcapng"))) == 2, "the taps are there")
    receiver = bed.start("b", instrument, "tcp", "receive", to, "--json")
    assert receiver.stdout is not None
    assert "listening" in receiver.stdout.readline()
    with logging(out / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        sizes = ("--bytes", str(BYTES), "--message-bytes", str(MESSAGE))
        sender = bed.start("a", instrument, "tcp", "send", to, *sizes, "--read-before-send",
                           "--record", out / "w")  # fmt: skip
        assert sender.wait(60) == 0
        assert receiver.wait(60) == 0
        bed.await_rest()
        logger.end()
    for one in (*taps, emulator):
        one.send_signal(2)
        assert one.wait(60) == 0


@pytest.mark.parametrize(
    ("what", "family", "offloads"),
    [
        pytest.param(*case, id="-".join(map(str, case)), marks=() if case in SHORT else pytest.mark.proof)
        for case in CASES
    ],
)
def test_all_instruments_agree_on_every_segment(what: str, family: int, offloads: str, tmp_path: Path) -> None:
    out = tmp_path / "x"
    with faulty_bed(family, offloads) as bed:
        recorded(bed, PIPES[what], out, family)
    flows = read_table(out / "t" / "records", "tcp_flows").frame
    [sender] = flows.filter(pl.col("remote_port") == PORT)["flow"]
    segments, account = joined(
        open_flow(out / "t", sender, Chosen(), [out / one for one in ("e", "tap-a", "tap-b", "w")])
    )
    assert account.differences() == []
    assert account.unexplained == 0
    near, far = account.taps
    assert (near.tap, far.tap) == ("tap-a/p0", "tap-b/p0")
    assert account.segments == near.segments == account.at_emulator
    assert far.segments == near.segments - account.lost_at_emulator
    if offloads == "gso":
        assert near.packets < account.segments, "packets of several segments, which the emulator cuts"
    else:
        assert near.packets == account.segments
    if offloads == "gro":
        assert far.joined < far.segments, "packets of several segments"
        assert far.copies > 0 or what != "copies"
    else:
        assert far.packets == far.segments + far.copies
        assert far.copies == account.emulator_unjoined
    assert account.emulator_unjoined == copies_of(out)
    if what == "copies":
        assert account.emulator_unjoined > 0
    else:
        assert account.lost_at_emulator > 0
    assert account.writes >= BYTES / MESSAGE
    assert account.written == account.segments
    assert account.acks_at_taps == account.acknowledged > 0
    way = ("write_ns", "sent_ns", "tap_before_ns", "link_left_ns", "tap_after_ns", "received_ns", "ack_tap_after_ns",
           "ack_tap_before_ns", "acked_ns")  # fmt: skip
    # Of what was sent twice needlessly, one arrives behind the acknowledgement that covers it, the first one too.
    whole = segments.filter(~pl.col("again").any().over("seq")).drop_nulls(way)
    assert whole.height > 0.8 * account.segments
    for before, after in pairwise(way):
        assert (whole[after] >= whole[before]).all(), f"{after} before {before}"


def copies_of(out: Path) -> int:
    """Copies that the emulator made of packets with data from a."""
    packets = read_table(out / "e", "packets").frame
    is_copy = pl.col("copy_of").is_not_null() & (pl.col("direction") == "forward")
    return packets.filter(is_copy, pl.col("frame_bytes") > LONGEST_HEADERS).height


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark here: scripts/setup.sh test installs it")
def test_retransmissions_and_rtts_agree_with_tshark(tmp_path: Path) -> None:
    """Who is right where they differ, the log of TCP shows: `again` and the round trips are the kernel's."""
    out = tmp_path / "x"
    with faulty_bed() as bed:
        recorded(bed, PIPES["loss"], out)
    [sender] = read_table(out / "t" / "records", "tcp_flows").frame.filter(pl.col("remote_port") == PORT)["flow"]
    flow = open_flow(out / "t", sender, Chosen(), [out / one for one in ("e", "tap-a", "tap-b")])
    segments, _ = joined(flow)
    capture = out / "tap-a" / "p0.pcapng"
    again = "tcp.analysis.retransmission || tcp.analysis.out_of_order"
    theirs = {int(number, 16) for (number,) in tshark(capture, f"tcp.len > 0 && ({again})", "ip.id")}
    assert theirs == set(segments.filter("again")["ip_id"])
    assert theirs

    rows = tshark(capture, "tcp.analysis.ack_rtt", "ip.id", "tcp.ack_raw", "tcp.analysis.ack_rtt")
    trips = {(int(ip_id, 16), int(ack)): float(rtt) for ip_id, ack, rtt in rows}
    numbers = flow.sender.samples.select(pl.col("cpu").cast(pl.Int64).alias("acked_cpu"),
                                         pl.col("number").alias("acked_number"), pl.col("ip_id").alias("ack_ip_id"),
                                         "ack", "rtt_last_us")  # fmt: skip
    once = segments.filter(~pl.col("seq").is_in(segments.filter("again")["seq"].implode()))
    ours = once.join(numbers, on=["acked_cpu", "acked_number"]).drop_nulls("ack_tap_before_ns")
    ours = ours.filter((pl.col("seq") + pl.col("payload_bytes")) % 2**32 == pl.col("ack"))
    both = [(row["ack_tap_before_ns"] - row["tap_before_ns"], round(trips[key] * 1e9), row["rtt_last_us"])
            for row in ours.iter_rows(named=True) if (key := (row["ack_ip_id"], row["ack"])) in trips]  # fmt: skip
    assert len(both) > 0.5 * len(trips)
    assert all(abs(mine - other) <= 1_000 for mine, other, _ in both), "tshark prints nanoseconds"
    kernels = [(mine, kernel) for mine, _, kernel in both if kernel]
    assert len(kernels) > 0.5 * len(both)
    mine, kernel = (statistics.median(times) for times in zip(*kernels, strict=True))
    assert kernel == pytest.approx(mine / 1e3, rel=0.1), "of the same acknowledgements"


def tshark(capture: Path, wanted: str, *fields: str) -> list[list[str]]:
    """The fields of the packets that a display filter lets through."""
    argv = [
        "tshark",
        "-r",
        str(capture),
        "-Y",
        wanted,
        "-T",
        "fields",
        *(word for one in fields for word in ("-e", one)),
    ]
    told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    return [line.split("\t") for line in told.splitlines()]
