"""Control limits and the component between groups: held to made-up values of known truth."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.statistics.control_chart import individuals
from sojourn.statistics.nested import between_groups, within_groups


def test_limits_are_those_of_the_textbook() -> None:
    """Moving ranges 2, 1, 4, 3, 2: their mean is 2.4, and 2.66 times that is 6.38."""
    limits = individuals(np.array([10.0, 12, 11, 15, 12, 14]))
    assert limits is not None
    assert limits.mean == pytest.approx(12.333, abs=1e-3)
    assert limits.high - limits.mean == pytest.approx(2.66 * 2.4, rel=1e-3)
    assert limits.mean - limits.low == pytest.approx(2.66 * 2.4, rel=1e-3)


def test_fewer_than_six_values_have_no_limits() -> None:
    assert individuals(np.arange(5.0)) is None


def test_few_values_of_a_stable_process_lie_outside() -> None:
    rng = np.random.default_rng(1)
    outside = 0
    for _ in range(200):
        values = rng.normal(100, 5, 50)
        limits = individuals(values)
        assert limits is not None
        outside += sum(limits.excludes(value) for value in values)
    assert outside / 10_000 < 0.008, "0.27 % where the deviation is known"


def test_jump_is_outside_the_control_limits() -> None:
    values = np.random.default_rng(2).normal(100, 1, 30)
    values[-1] = 110
    limits = individuals(values)
    assert limits is not None
    assert [limits.excludes(value) for value in values] == [False] * 29 + [True]


@pytest.mark.parametrize("truth", [0.0, 30.0, 100.0])
@pytest.mark.parametrize("sizes", [(4,) * 8, (1, 2, 3, 4, 5, 6, 3, 2, 1, 4)])
def test_the_component_between_boots_is_recovered(truth: float, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    variances, held = [], 0
    groups = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(400):
        values = rng.normal(0, truth, len(sizes))[groups] + rng.normal(1000, 50, len(groups))
        found = between_groups(values, groups.tolist(), np.full(len(groups), np.nan))
        assert found is not None
        assert found.is_replicated
        variances.append(found.between**2)
        held += found.low <= truth <= found.high
    assert 0.93 <= held / 400 <= 1.0 if truth == 0 else 0.93 <= held / 400 <= 0.985
    most = 1.6 * 50**2 / np.mean(sizes) if truth == 0 else 1.15 * truth**2 + 200
    assert 0.85 * truth**2 <= np.mean(variances) <= most


def test_boots_with_one_run_use_the_standard_error_of_the_run() -> None:
    rng = np.random.default_rng(4)
    held, found_sd = 0, []
    for _ in range(400):
        values = rng.normal(0, 60, 10) + rng.normal(0, 40, 10)
        found = between_groups(values, list(range(10)), np.full(10, 40.0))
        assert found is not None
        assert not found.is_replicated
        held += found.low <= 60 <= found.high
        found_sd.append(found.between**2)
    assert 0.93 <= held / 400 <= 0.98
    assert np.mean(found_sd) == pytest.approx(3600, rel=0.12)


def test_fewer_than_six_groups_give_no_component() -> None:
    values = np.arange(20.0)
    assert between_groups(values, [number % 5 for number in range(20)], np.full(20, 1.0)) is None
    assert between_groups(values, [number % 6 for number in range(20)], np.full(20, 1.0)) is not None


def test_single_values_without_errors_give_no_component() -> None:
    assert between_groups(np.arange(8.0), list(range(8)), np.full(8, np.nan)) is None


def test_equal_values_have_a_zero_component() -> None:
    found = between_groups(np.full(24, 5.0), [number % 6 for number in range(24)], np.full(24, np.nan))
    assert found is not None
    assert (found.between, found.low, found.high) == (0, 0, 0)


def test_equal_values_are_inside_the_control_limits() -> None:
    limits = individuals(np.full(20, 0.1))
    assert limits is not None
    assert not limits.excludes(0.1)


@pytest.mark.parametrize("drift", [0.0, 20.0, 60.0])
def test_excess_scatter_between_runs_of_a_day_is_recovered(drift: float) -> None:
    """Eighty days of forty runs each; a day differs from the next by 100, which is no part of it."""
    rng = np.random.default_rng(4)
    days = np.repeat(np.arange(80), 40)
    errors = rng.choice([10.0, 30.0], len(days))
    values = rng.normal(0, 100, 80)[days] + rng.normal(0, drift, len(days)) + rng.normal(0, errors)
    found = within_groups(values, days.tolist(), errors)
    assert found is not None
    assert found.sd == pytest.approx(drift, rel=0.1, abs=5)
    assert found.degrees == 80 * 39


def test_six_values_of_a_day_are_too_few_for_the_scatter_between_them() -> None:
    assert within_groups(np.arange(6.0), ["day"] * 6, np.zeros(6)) is None
    assert within_groups(np.arange(7.0), ["day"] * 7, np.zeros(7)) is not None
