"""Study "short-flows" on real frames: a transfer takes the round trips of slow start, and what its last burst takes."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.records.log import read_log
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")]

MS = 1_000_000
RATE_BPS, DELAY_NS = 50e6, 10 * MS
MSS, HEADERS = 1448, 66
"""User data of a segment with timestamps; Ethernet, IP and TCP around it."""

INITIAL_WINDOW = 10
"""Segments (RFC 6928, as Linux has it)."""

SIZES = (10_000, 100_000)
SETS = (
    "emulate.words=rate 50Mbit/s delay 10ms queue 200", "emulate.spin=false", "bed.sessions=1",
    "short.size_bytes=10000,100000", "short.transfers=20", "short.rounds=2", "short.at_most=2min",
)  # fmt: skip


def wire_ns(payload: int) -> float:
    """How long so much user data is on the link."""
    return (payload + HEADERS * -(-payload // MSS)) * 8e9 / RATE_BPS


def least_ns(size: int) -> float:
    """The shortest completion time: no window is more than twice the one before it, and each waits for the first ACK.

    The first ACK of a window is there a segment and both delays after the window before it began. The last window's
    data take their time on the link, and then its delay.
    """
    window, sent, at = INITIAL_WINDOW, 0, 0.0
    while size - sent > window * MSS:
        sent, window, at = sent + window * MSS, 2 * window, at + 2 * DELAY_NS + wire_ns(MSS)
    return at + wire_ns(size - sent) + DELAY_NS


def test_minimum_completion_time_counts_round_trips_of_slow_start() -> None:
    """7 segments are within the first window, 70 within three: 10 + 20 + 40."""
    assert least_ns(10_000) == pytest.approx(11.67 * MS, rel=1e-3)
    assert least_ns(100_000) == pytest.approx((2 * 20.242 + 10 + 9.473) * MS, rel=1e-3)


@retried
def test_completion_times_agree_with_slow_start(tmp_path: Path) -> None:
    plan = load_plan("short-flows", sets=SETS)
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    analyse(folder.path)
    rows = {(row["statistic"], row["payload_bytes"]): row for row in json.loads(folder.results.read_text())}
    assert "incomplete" not in {one["name"] for one in json.loads(folder.verdict.read_text())["findings"]}
    log = read_log(folder.log)
    assert any(entry["event"] in {"contended", "undisturbed"} for entry in log), "nobody watched the machine"
    trials = [entry for entry in log if entry["event"] == "tcp-trial"]
    for size in SIZES:
        each = [times_of(trial["connections"]) for trial in trials if trial["connections"][0]["size_bytes"] == size]
        took, median = np.sort(np.concatenate(each)), rows["p50", size]["estimate"]
        print(size, least_ns(size), took, median)
        assert [len(one) for one in each] == [20, 20]
        assert took[0] >= least_ns(size)
        assert median == pytest.approx(np.mean([np.median(one) for one in each]))
        # A stall of this machine lengthens single transfers by much: the path's own time is that of the shortest.
        with undisturbed():
            assert took[0] <= 1.05 * least_ns(size)


def times_of(connections: list[dict[str, int]]) -> list[int]:
    """The completion times of transfers, in ns."""
    return [one["read_ns"] - one["written_ns"] for one in connections]
