"""Goodput and use of a link over a short time, of flows that fill it: whatever the times of readings and holes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sojourn.methods.tcp_load.analyse.trials import Link, Span, changes, used_of

MSS, FRAME = 1448, 1514
RATE_BPS = 20e6
SEGMENTS_PS = RATE_BPS / 8 / FRAME
EVERY_NS = 100_000_000
SPAN = Span(1_000_000_000, 1_700_000_000)
LINK = Link(RATE_BPS, 0.0)
SHRINKING = [0.9] * 10 + [0.8, 0.7, 0.6, 0.5, 0.4, 0.3] + [0.2] * 4
GROWING = [1 - one for one in SHRINKING]


def flow(shares: list[float], hole: tuple[int, int] = (0, 0), late_ns: int = 0) -> pl.DataFrame:
    """Readings of a flow that gets these shares of the link, a tenth of a second each.

    Read after each tenth of a second and `late_ns`. While there is a hole (its readings), nothing behind it is
    acknowledged but selectively.
    """
    at = np.arange(len(shares)) * EVERY_NS + late_ns
    came = np.concatenate([[0.0], np.cumsum(shares)]) * SEGMENTS_PS * EVERY_NS / 1e9
    delivered = np.floor(np.interp(at, np.arange(len(shares) + 1) * EVERY_NS, came)).astype(np.int64)
    acked = delivered.copy()
    acked[slice(*hole)] = delivered[hole[0]]
    return pl.DataFrame({
        "local": f"late by {late_ns}", "read_after_ns": at, "acked_bytes": acked * MSS, "sacked_out": delivered - acked,
        "mss_bytes": MSS, "delivered": delivered, "options": 1, "data_segs_out": delivered, "total_retrans": 0,
    })  # fmt: skip


@pytest.mark.parametrize("hole", [(0, 0), (6, 14), (12, 19), (3, 13)], ids=["none", "before", "behind", "long"])
def test_filling_a_sequence_gap_does_not_shift_goodput_in_time(hole: tuple[int, int]) -> None:
    readings = flow([1.0] * 20, hole)
    found = changes(readings.filter(SPAN.holds("read_after_ns")))
    assert found is not None
    assert found.goodput_bps == pytest.approx(RATE_BPS * MSS / FRAME, rel=0.005)
    assert used_of(readings, SPAN, LINK) == pytest.approx(1, rel=0.005)


@pytest.mark.parametrize("late_ns", [10_000_000, 50_000_000, 90_000_000])
def test_utilisation_is_correct_for_flows_with_changing_shares(late_ns: int) -> None:
    readings = pl.concat([flow(SHRINKING), flow(GROWING, late_ns=late_ns)])
    assert used_of(readings, SPAN, LINK) == pytest.approx(1, rel=0.005)
