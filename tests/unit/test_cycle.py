"""Slow values that recur in time are found with their period; chance, bursts and slow changes are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from sojourn.methods.pairs.analyse.shape import _cycle_of
from sojourn.statistics.cycle import Cycle, find_cycle

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 500


def looks(rng: np.random.Generator, seconds: float, on: float = 0.1) -> NDArray[np.float64]:
    """The times at which one of four paths is probed: a turn of 0.1 s in each 0.4 s, in a random order."""
    t = np.arange(0, seconds, 1 / RATE)
    turn = rng.integers(0, 4, int(seconds / (4 * on)) + 2)
    chosen: NDArray[np.bool_] = (np.mod(t, 4 * on) // on).astype(int) == turn[(t // (4 * on)).astype(int)]
    return np.asarray(t[chosen], dtype=np.float64)


def recurring(seed: int, seconds: float, period: float, lasts: float, rate: float) -> Cycle | None:
    """What is found of probes that are slow at this rate for so long after each period, and now and then besides."""
    rng = np.random.default_rng(seed)
    t = looks(rng, seconds)
    due = np.mod(t - rng.uniform(0, period), period) < lasts
    return find_cycle(t, (rng.random(len(t)) < 0.0005) | (due & (rng.random(len(t)) < rate)), 0.2)


def test_ramp_every_92_s_is_found_within_15_minutes() -> None:
    found = [recurring(seed, 900, 92.0, 30.0, 0.02) for seed in range(10)]
    assert all(one is not None and one.seconds == pytest.approx(92, rel=0.02) for one in found)


def test_short_stalls_each_2_5_s_are_found_with_their_period() -> None:
    found = [recurring(seed, 600, 2.5, 0.05, 0.5) for seed in range(10)]
    assert all(one is not None and one.seconds == pytest.approx(2.5, rel=0.01) for one in found)


def test_random_bursts_and_slow_changes_are_not_periodic() -> None:
    alarms = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        t = looks(rng, 600)
        stray = rng.random(len(t)) < 0.002
        bursts = np.zeros(len(t), bool)
        for at in rng.uniform(0, 600, 40):
            bursts |= (abs(t - at) < rng.exponential(0.5)) & (rng.random(len(t)) < 0.3)
        weather = np.cumsum(rng.normal(size=6001))
        weather -= np.linspace(weather[0], weather[-1], 6001)
        level = 0.003 * np.exp(np.interp(t, np.arange(6001) * 0.1, weather / weather.std()))
        drawn = rng.random(len(t)) < level
        alarms += sum(find_cycle(t, slow, 0.2) is not None for slow in (stray, bursts, drawn))
    assert alarms <= 1


@pytest.mark.parametrize("seconds", [60.0, 64.2, 130.0, 258.0])
@pytest.mark.parametrize("period", [1.1, 1.6])
def test_periods_just_above_the_minimum_are_searched_for_any_duration(seconds: float, period: float) -> None:
    rng = np.random.default_rng(7)
    t = np.arange(0, seconds, 0.002)
    slow = (np.mod(t, period) < 0.1) & (rng.random(len(t)) < 0.2)
    found = find_cycle(t, slow, 1.0)
    assert found is not None
    assert found.seconds == pytest.approx(period, rel=0.01)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_slow_values_have_no_period(count: int) -> None:
    t = np.arange(0, 100, 0.01)
    slow = np.zeros(len(t), bool)
    slow[np.arange(count) * 1000] = True
    assert find_cycle(t, slow, 0.1) is None
    assert find_cycle(t[:0], slow[:0], 0.1) is None


def test_period_is_found_over_interleaved_blocks_of_a_path() -> None:
    rng = np.random.default_rng(5)
    t = looks(rng, 900)
    frame = pl.DataFrame({"block": (t / 0.4).astype(int), "intended_ns": (t * 1e9).astype(np.int64)})
    slow = np.mod(t, 92.0) < 20
    slow &= rng.random(len(t)) < 0.05
    found = _cycle_of(frame, slow)
    assert found is not None
    assert found == pytest.approx(92, rel=0.02)
    assert _cycle_of(frame, rng.random(len(t)) < 0.002) is None
