"""Goodput and use of a link over a short time, of flows that fill it: whatever the times of readings and holes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.tcp_trials import unwrapped
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


@pytest.mark.parametrize("beginning", [0, 2**31, 2**32 - 700])
def test_32_bit_segment_counters_are_extended_when_they_wrap(beginning: int) -> None:
    """Of two programs in one block, whose connections have the same number, and whose counters are far apart."""
    counters = pl.col("delivered", "data_segs_out")
    truth = pl.concat([
        flow([1.0] * 20).with_columns(counters + beginning, who=pl.lit("a")),
        flow([1.0] * 20).with_columns(counters + (beginning + 2**31 + 5) % 2**32, who=pl.lit("a1")),
    ]).with_columns(
        block=pl.lit(1), part=pl.lit(0), role=pl.lit("send"), connection=pl.lit(0),
        total_retrans=pl.lit(None, dtype=pl.Int64),
    )  # fmt: skip
    of_kernel = truth.with_columns(counters % 2**32)
    # Readings of both, in another order than they were made.
    found = unwrapped(of_kernel.sample(fraction=1.0, shuffle=True, seed=1)).sort("who", "read_after_ns")
    assert found.equals(truth)
    assert used_of(found.filter(pl.col("who") == "a"), SPAN, LINK) == pytest.approx(1, rel=0.005)
