"""Readings that a guest writes beside netem, pktgen and fq, and the rows that are made of them."""

from __future__ import annotations

import gzip
import math
import struct
from typing import TYPE_CHECKING

import pytest

from tests.kernels import beside

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = "6.12"


def capture(file: Path, stamped: list[tuple[int, int]]) -> None:
    """A capture in nanoseconds of echo requests: when, and their number."""
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 48, 1)
    for at_ns, number in stamped:
        head = bytes(12) + b"\x08\x00" + b"\x45" + bytes(19) + struct.pack(">BBHHH", 8, 0, 0, 1, number)
        data += struct.pack("<IIII", *divmod(at_ns, 10**9), len(head), 98) + head
    file.write_bytes(gzip.compress(data))


def delayed(folder: Path, name: str, error_ns: int) -> None:
    sent = [(10**18 + number * 10**7, number) for number in range(1, 201)]
    capture(folder / f"{name}.near.pcap.gz", sent)
    late = [(at + 5_000_000 + error_ns, number) for at, number in sent]
    capture(folder / f"{name}.far.pcap.gz", [one for one in late if one[1] != 7])


def test_delay_uses_requests_captured_at_both_ends(tmp_path: Path) -> None:
    delayed(tmp_path, "delay.ours.1", -20_000)
    assert beside.delay_errors(tmp_path, "delay.ours.1") == {"median": 20_000, "p99": 20_000}


def test_truncated_capture_is_read_to_its_end_and_another_format_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.pcap.gz"
    capture(file, [(10**18 + 5, 1), (10**18 + 9, 2)])
    whole = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(whole[:-1]))
    assert beside.requests(file) == {1: 10**18 + 5}
    file.write_bytes(gzip.compress(b"\xd4\xc3\xb2\xa1" + whole[4:]))
    with pytest.raises(beside.NoReadingError, match="no capture in nanoseconds"):
        beside.requests(file)


def test_gaps_are_compared_with_the_schedule_excluding_the_ends(tmp_path: Path) -> None:
    stamps = [10**18 + number * 1_000_000 for number in range(1000)]
    stamps[:10] = [stamps[10] - 10 + number for number in range(10)]  # a burst, as fq begins
    stamps[500:] = [at + 3_000 for at in stamps[500:]]
    capture(tmp_path / "pacing.pcap.gz", [(at, 0) for at in stamps])
    found = beside.gap_errors(tmp_path, "pacing", 1_000)
    assert found == {"median": 1.0, "p99": 1.0}
    assert beside.gap_errors(tmp_path, "pacing", 1_250)["median"] == 200_000


def counts(folder: Path, name: str, rate: int) -> None:
    at_rest = [f"{10 + step / 5:.2f} 3" for step in range(5)]
    running = [f"{11 + step / 5:.2f} {3 + rate // 10 + step * rate // 5}" for step in range(10)]
    (folder / f"{name}.counts").write_text("\n".join([*at_rest, *running, "13.00 999999999", "13.2"]))


def test_rate_uses_samples_within_the_maximum_rate_stream(tmp_path: Path) -> None:
    counts(tmp_path, "flood", 100_000)
    assert beside.frames_a_second(tmp_path, "flood")["rate"] == pytest.approx(100_000)
    (tmp_path / "still.counts").write_text("1.0 5\n1.2 5\n")
    with pytest.raises(beside.NoReadingError, match="moved in 0 samples"):
        beside.frames_a_second(tmp_path, "still")


def test_rows_are_ratios_of_pairs_and_name_tools_missing_in_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "missing").write_text("pktgen\n")
    for number in range(1, 7):
        delayed(tmp_path, f"delay.netem.{number}", 40_000 * number)
        delayed(tmp_path, f"delay.ours.{number}", 20_000 * number)
        delayed(tmp_path, f"delay.ours-spin.{number}", 10_000 * number)
    made, wrong = beside.rows(tmp_path, KERNEL)
    assert wrong == []
    first = made[0]
    assert (first.task, first.peer) == ("in a guest, Linux 6.12: a delay of 5 ms", "netem")
    assert first.measured == pytest.approx(0.5)
    assert first.n == 6
    [lacking] = [row for row in made if row.peer == "pktgen, which this kernel lacks"]
    assert math.isnan(lacking.measured)
    (tmp_path / "delay.ours.6.far.pcap.gz").unlink()
    made, wrong = beside.rows(tmp_path, KERNEL)
    assert made[0].n == 5
    assert len(wrong) == 1
