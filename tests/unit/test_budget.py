"""Uncertainty budgets against sums and degrees of freedom worked out by hand, and against an example of the GUM."""

from __future__ import annotations

import math

import pytest

from sojourn.statistics.budget import Component, combine, normal, rectangular


def test_end_gauge_example_of_the_gum_is_reproduced() -> None:
    """JCGM 100, H.1: u_c = 32 nm with 16 degrees of freedom, and U = 93 nm at 99 %."""
    components = [
        Component("calibration of the standard", "B", 25.0, "nm", degrees=18),
        Component("repeated observations", "A", 5.8, "nm", degrees=24),
        Component("random effects of the comparator", "B", 3.9, "nm", degrees=5),
        Component("systematic effects of the comparator", "B", 6.7, "nm", degrees=8),
        Component("difference of expansion coefficients", "B", 2.9, "nm", "rectangular", degrees=50),
        Component("difference of temperatures", "B", 16.6, "nm", "rectangular", degrees=2),
    ]
    found = combine(components, 0.99)
    assert found.combined == pytest.approx(32, abs=0.5)
    assert int(found.effective_degrees) == 16
    assert found.expanded == pytest.approx(93, abs=1.5)


def test_contributions_add_in_quadrature_and_the_sign_of_a_sensitivity_is_irrelevant() -> None:
    found = combine([Component("a", "A", 3.0, "ns"), Component("b", "B", 2.0, "K", sensitivity=-2.0)])
    assert found.combined == 5.0
    assert [found.share(one) for one in found.components] == pytest.approx([0.36, 0.64])
    assert found.effective_degrees == math.inf
    assert found.coverage_factor == pytest.approx(1.959964, abs=1e-6)
    assert found.expanded == pytest.approx(5 * 1.959964, abs=1e-5)


def test_one_component_keeps_its_degrees_of_freedom_and_two_equal_ones_add_theirs() -> None:
    one = Component("sessions", "A", 2.0, "ns", "student-t", degrees=7)
    assert combine([one]).effective_degrees == pytest.approx(7)
    assert combine([one]).coverage_factor == pytest.approx(2.3646, abs=1e-4)
    assert combine([one, one]).effective_degrees == pytest.approx(14)
    assert combine([one, Component("clock", "B", 0.0, "ns", degrees=1)]).effective_degrees == pytest.approx(7)


def test_limits_and_certificates_become_standard_uncertainties() -> None:
    limits = rectangular("tick of the clock", 6.0, "ns")
    assert limits.standard_uncertainty == pytest.approx(6 / math.sqrt(3))
    assert (limits.evaluation, limits.distribution, limits.degrees) == ("B", "rectangular", math.inf)
    assert normal("splitter", 8.0, "ns").standard_uncertainty == 4.0
    assert normal("splitter", 9.0, "ns", coverage_factor=3.0).standard_uncertainty == 3.0


@pytest.mark.parametrize("uncertainty", [-1.0, math.nan, math.inf])
def test_invalid_uncertainties_are_refused(uncertainty: float) -> None:
    with pytest.raises(ValueError, match="clock: a standard uncertainty"):
        Component("clock", "B", uncertainty, "ns")


def test_impossible_sensitivities_degrees_factors_and_empty_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match="sensitivity"):
        Component("clock", "B", 1.0, "ns", sensitivity=math.nan)
    for degrees in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="degrees"):
            Component("clock", "B", 1.0, "ns", degrees=degrees)
    with pytest.raises(ValueError, match="coverage factor"):
        normal("clock", 1.0, "ns", coverage_factor=0.0)
    for components in ([], [Component("clock", "B", 0.0, "ns")]):
        with pytest.raises(ValueError, match="at least one component"):
            combine(components)
