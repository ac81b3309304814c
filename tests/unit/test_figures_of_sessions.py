"""Pair differences of several beds as one figure, whatever beds were lost or cut."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.analysis.sessions import NO_SESSION, Figure, beds_counted, figure_of


def figure(*beds: list[float]) -> Figure:
    differences = np.array([one for bed in beds for one in bed])
    return figure_of(differences, np.array([number for number, bed in enumerate(beds) for _ in bed], dtype=np.int64))


def test_scatter_between_beds_widens_the_interval() -> None:
    found = figure(*([100.0 * bed - 1, 100.0 * bed, 100.0 * bed + 1] for bed in range(8)))
    assert found.sessions == 8
    assert found.mean.estimate == pytest.approx(350)
    assert found.mean.half_width == pytest.approx(2.3646 * np.std(np.arange(8) * 100, ddof=1) / 8**0.5, rel=1e-4)
    assert found.within.half_width is not None
    assert found.within.half_width < 1
    assert found.mean.n == 24
    # How far beds are apart is no tail.
    assert not found.pseudomedian.excludes(350)


def test_one_bed_gives_repeatability_only() -> None:
    found = figure([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert found.sessions is None
    assert found.between is None
    assert found.mean == found.within


def test_two_beds_have_no_interval_and_no_p() -> None:
    found = figure([1.0, 2.0], [3.0, 5.0])
    assert (found.sessions, found.mean.low, found.p) == (2, None, None)


def test_beds_of_one_pair_each_have_no_interval() -> None:
    found = figure(*([float(one)] for one in range(8)))
    assert (found.sessions, found.mean.low, found.mean.estimate) == (8, None, 3.5)


def test_bed_with_one_pair_is_excluded_if_others_have_more() -> None:
    found = figure([1.0, 1.1], [1.2, 1.05], [1.15, 1.0], [9.0])
    assert found.mean.n == 6
    assert found.mean.estimate == pytest.approx(np.mean([1.0, 1.1, 1.2, 1.05, 1.15, 1.0]))
    assert found.pseudomedian.n == 6


def test_equal_beds_show_no_scatter_and_get_no_interval() -> None:
    found = figure(*([1.0, 1.0] for _ in range(6)))
    assert (found.mean.low, found.p) == (None, None)


def test_rounds_split_over_two_beds_are_excluded() -> None:
    found = figure_of(np.array([1.0, 2.0, 90.0]), np.array([0, 0, NO_SESSION]))
    assert (found.sessions, found.mean.n) == (None, 2)


def test_a_tail_within_beds_moves_the_mean_and_not_the_pseudomedian() -> None:
    rng = np.random.default_rng(1)
    beds = [[*rng.normal(0, 10, 19), 10_000.0] for _ in range(8)]
    found = figure(*beds)
    assert found.pseudomedian.excludes(found.mean.estimate)


def test_counted_beds_are_those_of_the_figure() -> None:
    for beds in ([2, 2, 2, 1], [3, 1, 1], [1, 1, 1], [4], [2, 1]):
        session = np.repeat(np.arange(len(beds)), beds)
        values = np.arange(len(session), dtype=np.float64)
        assert beds_counted(session) == figure_of(values, session).sessions
