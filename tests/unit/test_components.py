"""Components of variance: the truth within the intervals, for nested and for factorial designs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from sojourn.statistics.components import combine, factorial, nested, spreads_more

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS = 2000
FEW = 3 * (0.05 * 0.95 / RUNS) ** 0.5
"""Three standard deviations of the share of so many runs."""


@pytest.mark.parametrize("sds", [(60.0, 30.0, 100.0), (0.0, 30.0, 100.0), (60.0, 0.0, 20.0), (200.0, 5.0, 10.0)])
@pytest.mark.parametrize("shape", [(12, 3, 3), (8, 3, 2), (8, 2, 2)])
def test_the_components_of_a_nested_design_are_within_their_intervals(
    sds: tuple[float, float, float], shape: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(11)
    shapes = ((RUNS, shape[0], 1, 1), (RUNS, *shape[:2], 1), (RUNS, *shape))
    of_beds, of_starts, of_repeats = (rng.normal(0, sd, size) for sd, size in zip(sds, shapes, strict=True))
    values = of_beds + of_starts + of_repeats
    for truth, found in zip(sds, nested(values), strict=True):
        assert np.mean((found.low <= truth**2) & (truth**2 <= found.high)) >= 0.95 - 1.5 * FEW
        assert np.mean(found.low > truth**2) <= 0.025 + FEW
        scatter = float(found.estimate.std()) / RUNS**0.5
        assert float(found.estimate.mean()) == pytest.approx(truth**2, abs=4 * scatter)


def test_nested_design_needs_two_groups_subgroups_and_repeats() -> None:
    with pytest.raises(ValueError, match="two groups, subgroups and repeats"):
        nested(np.zeros((3, 1, 3)))


def eight() -> NDArray[np.bool_]:
    """Half an eighth: three factors in full, three more on their products; the first row has all free."""
    signs = np.array([[1 - 2 * (i >> bit & 1) for bit in range(3)] for i in range(8)])
    a, b, c = signs.T
    return np.stack([a, b, c, a * b, a * c, b * c], axis=1) > 0


@pytest.mark.parametrize("beds", [4, 6, 9])
@pytest.mark.parametrize(
    "parts", [(0, 0, 0, 60, 0, 0), (30, 0, 0, 30, 0, 30), (0, 0, 0, 0, 0, 0), (0, 200, 0, 0, 20, 0)]
)
def test_the_components_of_a_factorial_design_are_within_their_intervals(beds: int, parts: tuple[int, ...]) -> None:
    rng, free, rest = np.random.default_rng(5), eight(), 40.0
    found = factorial(free)
    assert found is not None
    sd = np.sqrt(rest**2 + (free * np.square(parts)).sum(axis=1))
    squares = rng.normal(0, sd[:, None], (RUNS, 8, beds)).var(axis=-1, ddof=1)
    degrees = np.full(8, beds - 1.0)
    truths = [rest**2, *np.square(parts)]
    for truth, weights in zip([*truths, sum(truths)], [*found.weights, found.total], strict=True):
        component = combine(squares, degrees, weights)
        held = np.mean((component.low <= truth) & (truth <= component.high))
        assert held >= 0.95 - 1.5 * FEW, (truth, held)
        scatter = float(component.estimate.std()) / RUNS**0.5
        assert float(component.estimate.mean()) == pytest.approx(truth, abs=4 * scatter)


def test_dominant_factor_is_identified() -> None:
    rng, free = np.random.default_rng(5), eight()
    found = factorial(free)
    assert found is not None
    sd = np.where(free[:, 3], 200.0, 30.0)
    squares = rng.normal(0, sd[:, None], (RUNS, 8, 9)).var(axis=-1, ddof=1)
    told = [np.mean(combine(squares, np.full(8, 8.0), weights).low > 0) for weights in found.weights[1:]]
    assert told[3] > 0.99
    assert max(told[:3] + told[4:]) <= 0.025 + FEW


def test_factor_that_never_varies_cannot_be_estimated() -> None:
    assert factorial(np.array([[True], [True]])) is None
    assert factorial(np.array([[True], [False]])) is not None


def test_single_mean_square_has_a_chi_square_interval() -> None:
    found = combine(np.array([2.0]), np.array([10.0]), np.array([1.0]))
    assert float(found.low) == pytest.approx(2 * 10 / 20.483, rel=1e-4)
    assert float(found.high) == pytest.approx(2 * 10 / 3.247, rel=1e-3)


@pytest.mark.parametrize("wild", [False, True])
def test_rank_test_detects_a_factor_and_ignores_outliers(wild: bool) -> None:
    rng, runs, beds = np.random.default_rng(3), 600, 6
    free = np.repeat(eight(), beds, axis=0)
    told = np.zeros(6)
    for _ in range(runs):
        sd = np.where(free[:, 3], 1.0 if wild else 6.0, 1.0)
        values = (rng.standard_cauchy(len(free)) if wild else rng.normal(0, 1, len(free))) * sd
        inner = (values.reshape(8, beds) - np.median(values.reshape(8, beds), axis=1, keepdims=True)).ravel()
        told += [spreads_more(inner, free[:, one]) < 0.01 for one in range(6)]
    shares = told / runs
    assert max(np.delete(shares, 3)) <= 0.025 + 3 * (0.025 * 0.975 / runs) ** 0.5
    assert shares[3] <= 0.045 if wild else shares[3] > 0.9
