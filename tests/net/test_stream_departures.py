"""What a sender says of its departures, beside a capture at the far end that knows nothing of it.

The capture's stamps are the kernel's at B, the sender's are the kernel's at A: one clock. Bounds hold on a busy
machine, too, because both see the same lateness: what is held together is what they say, not how well the schedule was
kept.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.judge import arrivals
from sojourn.bed import BedSpec, build_bed
from sojourn.bed.backends.local import LocalMachine
from sojourn.instruments import find_instrument
from sojourn.instruments.capture import await_listening
from sojourn.records import read_table
from tests.net.busy_machine import await_that, thrice, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from sojourn.bed import Bed

    Times = NDArray[np.int64]

RATE, COUNT = 2_000, 4_000
PORT = 7708
KIND, DATA = 8 + 4, 1
"""Where the header says what a frame is, behind UDP's own; what it says of packets. Greetings come before them."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: tcpdump does not work in a user namespace")


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with build_bed(BedSpec(), f"departures{os.getpid()}") as built:
        yield built


def captured(bed: Bed, folder: Path, schedule: str) -> tuple[dict[str, Any], tuple[Times, Times], Times]:
    """A stream's own summary, intended and actual departures by its records, arrivals by the capture, all in TAI."""
    link, file = bed.topology.link("direct"), folder / "far-end.pcap"
    options = [
        "-i",
        link.b_dev,
        "-n",
        "-p",
        "-s",
        "64",
        "-B",
        "16384",
        "--time-stamp-precision=nano",
        "--immediate-mode",
    ]
    with file.open("wb") as output:
        watch = ["tcpdump", *options, "-U", "-w", "-", f"udp dst port {PORT} and udp[{KIND}] = {DATA}"]
        capture = bed.backend.start("b", watch, stdout=output, stderr=subprocess.PIPE)
    await_listening(capture)
    to = ["--udp", f"{link.b_ip4}:{PORT}", "--dev", link.a_dev, "--clock", "none"]
    what = ["--schedule", schedule, "--rate", f"{RATE}pps", "--count", str(COUNT), "--payload-bytes", "64"]
    argv = [find_instrument(), "stream", "send", *to, *what, "--record", str(folder / "records"), "--json"]
    sender = bed.backend.start("a", argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said, complaints = sender.communicate(timeout=60)
    assert sender.returncode in (0, 4), complaints
    await_that(lambda: len(arrivals(file)) >= COUNT, "the capture's last frames")
    capture.terminate()
    capture.communicate(timeout=60)
    sends = read_table(folder / "records", "sends").frame.sort("seq")
    seen = arrivals(file) + LocalMachine().tai_offset_ns("b")
    left = (sends["intended_ns"].to_numpy(), sends["departure_ns"].to_numpy())
    return json.loads(said)["flows"][0], left, seen


@thrice
def test_reported_departures_agree_with_arrivals_at_the_receiver(bed: Bed, tmp_path: Path) -> None:
    told, (intended, departures), seen = captured(bed, tmp_path, "regular")
    assert len(departures) == len(seen) == COUNT
    way = seen - departures
    assert way.min() >= 0, "a frame arrived before it left"
    # The schedule itself is known: its phase at the far end is the way's median.
    late_by_far_end = np.abs(seen - intended - np.median(way))
    with undisturbed():  # the way itself takes longer, now and then, where others have the processor
        assert np.median(way) < 50_000
        assert told["within_10us"] == pytest.approx(float(np.mean(late_by_far_end <= 10_000)), abs=0.1)
        assert told["achieved_pps"] == pytest.approx((COUNT - 1) / (seen[-1] - seen[0]) * 1e9, rel=0.002)


@thrice
def test_poisson_stream_is_poisson_at_the_receiver(bed: Bed, tmp_path: Path) -> None:
    told, (_, departures), seen = captured(bed, tmp_path, "poisson")
    assert len(departures) == len(seen) == COUNT
    # A busy machine makes clumps of a Poisson stream; then both must see them. An even stream has none at all.
    longer = [float(np.mean(np.diff(one) > 1e9 / RATE)) for one in (departures, seen)]
    gaps = np.diff(seen)
    with undisturbed():
        assert longer[0] == pytest.approx(longer[1], abs=0.03)
        assert gaps.std() > 0.5 * gaps.mean()
    assert told["anderson_darling"]["a2"] > 0
