"""What trials without loss can tell: probabilities against simulations, bounds against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sojourn.statistics.loss_decision import (
    finite_trial_excess,
    offered_tolerance,
    passes,
    passes_events,
    unseen_events,
    unseen_loss,
)
from sojourn.statistics.order import median_of

SEED = 20_261_123


@pytest.mark.parametrize(
    ("loss_ratio", "frames", "trials", "goal", "bad"),
    [(1e-4, 5_000, 3, 0.0, 0), (1e-3, 1_000, 1, 0.0, 0), (0.006, 2_000, 5, 0.005, 2), (0.2, 10, 4, 0.1, 1)],
)
def test_a_load_passes_as_often_as_simulated(
    loss_ratio: float, frames: int, trials: int, goal: float, bad: int
) -> None:
    rng, runs = np.random.default_rng(SEED), 20_000
    lost = rng.binomial(frames, loss_ratio, (runs, trials))
    seen = float(((lost > goal * frames).sum(axis=1) <= bad).mean())
    expected = passes(loss_ratio, frames, trials, goal, bad)
    print(f"seed {SEED}: {seen:.4f} simulated, {expected:.4f} calculated")
    assert seen == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / runs))


def test_a_load_without_loss_always_passes_and_one_that_loses_all_never() -> None:
    assert passes(0.0, 100, 3) == 1.0
    assert passes(1.0, 100, 3) == 0.0
    assert passes(1.0, 100, 3, bad=3) == 1.0
    assert passes(1e-4, 10_000, 3) == pytest.approx((1 - 1e-4) ** 30_000)


def test_the_loss_ratio_that_is_not_excluded_passes_one_time_in_twenty() -> None:
    for frames, trials in ((100, 1), (10_000, 3), (18_000_000, 2)):
        assert passes(unseen_loss(frames, trials), frames, trials) == pytest.approx(0.05)
        assert unseen_loss(frames, trials) == pytest.approx(3 / (frames * trials), rel=0.02)
    assert unseen_loss(100, level=0.99) > unseen_loss(100)


def test_events_are_excluded_by_time() -> None:
    assert passes_events(unseen_events(120.0), 120.0) == pytest.approx(0.05)
    assert passes_events(0.0, 1e9) == 1.0
    rng = np.random.default_rng(SEED)
    assert float((rng.poisson(0.5 * 3.0, 20_000) == 0).mean()) == pytest.approx(passes_events(0.5, 3.0), abs=0.012)


def test_a_buffer_lets_a_short_trial_pass_above_what_is_sustained() -> None:
    """Fluid: at the excess the buffer is full when the trial ends; at a little more it overflows."""
    capacity, buffer = 300_000.0, 1_000.0
    for seconds in (0.1, 60.0):
        rate = capacity + finite_trial_excess(buffer, seconds)
        assert (rate - capacity) * seconds == pytest.approx(buffer)


def test_the_tolerance_of_the_offered_rate_is_rectangular() -> None:
    assert offered_tolerance(100_000.0, 0.005) == pytest.approx(500 / math.sqrt(3))


def test_what_is_no_trial_is_refused() -> None:
    for wrong in ((1.5, 10, 1), (0.1, 0, 1), (0.1, 10, 0)):
        with pytest.raises(ValueError, match="at least one"):
            passes(*wrong)
    with pytest.raises(ValueError, match="time"):
        unseen_events(0.0)
    with pytest.raises(ValueError, match="buffer"):
        finite_trial_excess(-1.0, 1.0)
    with pytest.raises(ValueError, match="negative"):
        offered_tolerance(-1.0, 0.1)
    with pytest.raises(ValueError, match="negative"):
        passes_events(-1.0, 0.1)


@pytest.mark.parametrize("n", [6, 9, 20, 51])
def test_intervals_of_medians_hold_the_median_of_any_distribution(n: int) -> None:
    rng, runs = np.random.default_rng(SEED + n), 4_000
    values = rng.exponential(1.0, (runs, n))
    found = [median_of(row) for row in values]
    inside = float(np.mean([not one.excludes(math.log(2)) for one in found]))
    print(f"seed {SEED}: {inside:.3f} of {runs} intervals, level {found[0].level:.3f}")
    assert found[0].level >= 0.95
    assert inside == pytest.approx(found[0].level, abs=0.015)


def test_few_or_equal_values_have_no_interval_of_the_median() -> None:
    assert median_of(np.arange(5.0)).low is None
    assert median_of(np.full(9, 3.0)).low is None
    assert median_of(np.array([1.0, np.inf])).estimate == np.inf
