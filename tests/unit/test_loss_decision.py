"""What trials without loss can tell: probabilities against simulations, bounds against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sojourn.statistics.loss_decision import (
    finite_trial_excess,
    offered_tolerance,
    unseen_events,
    unseen_loss,
)
from sojourn.statistics.order import median_of

SEED = 20_261_123


def test_upper_limit_of_undetected_loss_passes_in_5_percent() -> None:
    for frames, trials in ((100, 1), (10_000, 3), (18_000_000, 2)):
        assert (1 - unseen_loss(frames, trials)) ** (frames * trials) == pytest.approx(0.05)
        assert unseen_loss(frames, trials) == pytest.approx(3 / (frames * trials), rel=0.02)
    assert unseen_loss(100, level=0.99) > unseen_loss(100)


def test_upper_limit_of_the_event_rate_passes_in_5_percent() -> None:
    rng = np.random.default_rng(SEED)
    assert float((rng.poisson(unseen_events(120.0) * 120.0, 20_000) == 0).mean()) == pytest.approx(0.05, abs=0.008)


def test_buffer_lets_a_short_trial_pass_above_the_sustained_rate() -> None:
    """Fluid: at the excess the buffer is full when the trial ends; at a little more it overflows."""
    capacity, buffer = 300_000.0, 1_000.0
    for seconds in (0.1, 60.0):
        rate = capacity + finite_trial_excess(buffer, seconds)
        assert (rate - capacity) * seconds == pytest.approx(buffer)


def test_the_tolerance_of_the_offered_rate_is_rectangular() -> None:
    assert offered_tolerance(100_000.0, 0.005) == pytest.approx(500 / math.sqrt(3))


def test_invalid_trials_are_refused() -> None:
    for wrong in ((0, 1), (10, 0)):
        with pytest.raises(ValueError, match="at least one"):
            unseen_loss(*wrong)
    with pytest.raises(ValueError, match="time"):
        unseen_events(0.0)
    with pytest.raises(ValueError, match="buffer"):
        finite_trial_excess(-1.0, 1.0)
    with pytest.raises(ValueError, match="negative"):
        offered_tolerance(-1.0, 0.1)


@pytest.mark.parametrize("n", [6, 9, 20, 51])
def test_intervals_of_medians_cover_for_any_distribution(n: int) -> None:
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
