"""Rare losses without memory raise no more alarms than they may, those with memory do: held to counts, seeds shown."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.methods.emulator.analyse.loss import reordered_share
from sojourn.statistics.randomness import ljung_box, runs_test

SEED = 20031205
RUNS = 300


@pytest.mark.parametrize(
    ("share", "packets"),
    [(0.02, 120), *(pytest.param(share, 240, marks=pytest.mark.proof) for share in (0.02, 0.95))],
)
def test_rare_losses_raise_alarms_at_the_stated_level(share: float, packets: int) -> None:
    random = np.random.default_rng(SEED)
    alarms = {"correlation": 0, "runs": 0}
    for _ in range(RUNS):
        rows = [random.random(packets) < share for _ in range(6)]
        alarms["correlation"] += ljung_box([row.astype(np.float64) for row in rows], 10).p < 0.01
        alarms["runs"] += runs_test(rows).p < 0.01
    # 3 are expected of 300; chi-square made 8 to 12 of them, and a hundred times too many at 1 in 10,000.
    assert all(count <= 9 for count in alarms.values()), (SEED, alarms)


def test_rare_losses_in_pairs_are_detected() -> None:
    random = np.random.default_rng(SEED)
    rows = [np.repeat(random.random(600) < 0.01, 2) for _ in range(6)]
    assert ljung_box([row.astype(np.float64) for row in rows], 10).p < 1e-9
    assert runs_test(rows).p < 1e-9


def test_runs_test_on_short_rows_equals_enumeration() -> None:
    """Two losses among six: of all 15 rows the runs are counted."""
    rows = [np.isin(np.arange(6), (a, b)) for a in range(6) for b in range(a + 1, 6)]
    runs = [1 + int((row[1:] != row[:-1]).sum()) for row in rows]
    for row, own in zip(rows, runs, strict=True):
        low, high = (sum(far) / len(runs) for far in ([r <= own for r in runs], [r >= own for r in runs]))
        assert runs_test([row]).p == pytest.approx(min(1.0, 2 * min(low, high)))


@pytest.mark.parametrize(
    ("probability", "gap", "share"), [(0.25, 0, 0.25), (0.25, 1, 0.25), (1.0, 5, 0.2), (0.5, 5, 1 / 6)]
)
def test_reordering_with_a_gap_selects_only_the_last_packet_of_each_gap(
    probability: float, gap: int, share: float
) -> None:
    assert reordered_share(probability, gap) == pytest.approx(share)
