"""The timeline over real frames: calls, taps on both sides of an emulator, and an account that leaves nothing over.

The emulator drops, delays out of order and copies packets; taps are `sojourn capture` at the two hosts. What the
instruments say of the same segments has to agree to a packet.
"""

from __future__ import annotations

import os
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
from tests.net.tcplog_bed import B4, PORT, Bed, logging

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: programs in the kernel, and namespaces by name")

PATH = "rate 20Mbit/s delay 5ms queue 100"
PIPES = {"loss": f"{PATH} loss 2%", "order": f"{PATH} loss 1% reorder 3%", "copies": f"{PATH} duplicate 4%"}
BYTES, MESSAGE = 1_500_000, 20_000


def recorded(bed: Bed, pipe: str, out: Path) -> None:
    """A transfer from a to b with every instrument: out/t, out/e, out/tap-a, out/tap-b, out/w."""
    out.mkdir()
    (out / "e").mkdir()
    instrument = find_instrument()
    asked = ("--forward", pipe, "--backward", PATH, "--seed", "5", "--engine", "packet")
    emulator = bed.start("box", instrument, "emulate", "run", "left", "right", "--json", "--control", out / "control",
                         *asked, "--log", out / "e")  # fmt: skip
    await_that((out / "control").exists, "the emulator is ready")
    shape = ("--headers", "--format", "pcapng")
    taps = [bed.start(host, instrument, "capture", "p0", "-o", out / f"tap-{host}", *shape) for host in "ab"]
    await_that(lambda: len(list(out.glob("tap-*/*.pcapng"))) == 2, "the taps are there")
    receiver = bed.start("b", instrument, "tcp", "receive", f"{B4}:{PORT}", "--json")
    assert receiver.stdout is not None
    assert "listening" in receiver.stdout.readline()
    with logging(out / "t", "--attach", bed.cgroup, "--port", str(PORT)) as logger:
        sizes = ("--bytes", str(BYTES), "--message-bytes", str(MESSAGE))
        sender = bed.start("a", instrument, "tcp", "send", f"{B4}:{PORT}", *sizes, "--read-before-send",
                           "--record", out / "w")  # fmt: skip
        assert sender.wait(60) == 0
        assert receiver.wait(60) == 0
        bed.await_rest()
        logger.end()
    for one in (*taps, emulator):
        one.send_signal(2)
        assert one.wait(60) == 0


@pytest.mark.parametrize("what", PIPES)
def test_all_instruments_agree_on_every_segment(what: str, tmp_path: Path) -> None:
    out = tmp_path / "x"
    with faulty_bed() as bed:
        recorded(bed, PIPES[what], out)
    flows = read_table(out / "t" / "records", "tcp_flows").frame
    [sender] = flows.filter(pl.col("remote_port") == PORT)["flow"]
    segments, account = joined(
        open_flow(out / "t", sender, Chosen(), [out / one for one in ("e", "tap-a", "tap-b", "w")])
    )
    assert account.differences() == []
    assert account.unexplained == 0
    near, far = account.taps
    assert (near.tap, far.tap) == ("tap-a/p0", "tap-b/p0")
    assert account.segments == near.packets == near.segments == account.at_emulator
    assert far.packets == near.packets - account.lost_at_emulator + far.copies
    if what == "copies":
        assert far.copies == account.emulator_unjoined > 0
    else:
        assert account.lost_at_emulator > 0
    assert account.writes >= BYTES / MESSAGE
    assert account.written == account.segments
    assert account.acks_at_taps == account.acknowledged > 0
    way = ("write_ns", "sent_ns", "tap_before_ns", "link_left_ns", "tap_after_ns", "received_ns", "ack_tap_after_ns",
           "ack_tap_before_ns", "acked_ns")  # fmt: skip
    # What was retransmitted needlessly arrives behind the acknowledgement that covers it.
    whole = segments.filter(~pl.col("again")).drop_nulls(way)
    assert whole.height > 0.8 * account.segments
    for before, after in pairwise(way):
        assert (whole[after] >= whole[before]).all(), f"{after} before {before}"
