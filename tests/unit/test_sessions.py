"""Means over sessions against closed forms and published figures, and whether their intervals hold what they should.

The simulated runs have pair differences with normal scatter within a session, and session effects of standard deviation
1 that need not be normal. Seeds are fixed and printed with the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from sojourn.statistics import sessions
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.sessions import AcrossSessions, across_sessions, q_profile, reml_variances
from tests.unit.many_runs import mean_and_error_rows, reach_rows

SEED = 20031106
RUNS = 10_000
FULL = 12
"""Pairs of a session that was not interrupted."""

BCG = np.array([-889, -1585, -1348, -1442, -218, -786, -1621, 12, -469, -1371, -339, 446, -17]) / 1000
BCG_VARIANCE = np.array([3256, 1946, 4154, 200, 512, 69, 2230, 40, 564, 730, 124, 5325, 714]) / 10_000
"""Log risk ratios of 13 trials of the BCG vaccine (Colditz et al., 1994), the usual example of meta-analysis."""


def of(
    values: list[float], errors: list[float] | float = 1.0, pairs: list[int] | int = FULL, level: float = 0.95
) -> AcrossSessions:
    k = len(values)
    return across_sessions(
        np.array(values, dtype=np.float64),
        np.broadcast_to(np.asarray(errors, dtype=np.float64), k),
        np.broadcast_to(np.asarray(pairs), k),
        level,
    )


def bounds(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


VALUES = [3.0, 5.0, 4.0, 9.0, 6.0, 2.0]


EVEN = [-5.0, -3.0, -1.0, 1.0, 3.0, 5.0]
"""Without any skewness."""


def test_equal_sessions_give_the_average_and_a_student_interval() -> None:
    found, even = of(VALUES), of(EVEN)
    assert found.estimator == "student-t"
    assert even.mean == student_t(np.array(EVEN))
    assert found.mean.low == pytest.approx(student_t(np.array(VALUES)).low)
    assert found.standard_error == pytest.approx(np.std(VALUES, ddof=1) / 6**0.5)
    assert (found.degrees, found.mean.n, found.repeatability.n) == (5, 6, 72)


def test_interval_is_asymmetric_for_skewed_sessions_as_by_hall() -> None:
    """Hall's equation, with the adjusted skewness of scipy: both ends solve it, or are Student's further out."""
    skewness = float(stats.skew(VALUES, bias=False))
    a, t = skewness / 6**0.5, stats.t.ppf(0.975, 5)
    for sign in (1, -1):
        found = of([sign * one for one in VALUES])
        assert found.lean == pytest.approx(sign * a)
        low, high = bounds(found.mean)
        error = found.standard_error or 0.0
        down, up = (found.mean.estimate - low) / error, (high - found.mean.estimate) / error
        longer, other = (up, down) if sign > 0 else (down, up)
        assert other == pytest.approx(t)
        assert longer > t
        assert -longer + a * longer**2 / 3 - a**2 * longer**3 / 27 + a / 6 == pytest.approx(-t)
    assert of(EVEN).lean == pytest.approx(0.0)


@pytest.mark.parametrize("values", [VALUES, [-one for one in VALUES], EVEN, [0.0, 0.0, 0.0, 0.0, 0.0, 60.0]])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_interval_limits_are_where_t_equals_the_student_quantile(values: list[float], level: float) -> None:
    low, high = bounds(of(values, level=level).mean)
    for end, inwards in ((low, 1e-6), (high, -1e-6)):
        inside, outside = (of([one - end - side * inwards for one in values]).t for side in (1, -1))
        assert abs(inside or 0.0) < stats.t.ppf((1 + level) / 2, 5) < abs(outside or 0.0)
    assert high - np.mean(values) <= 2 * student_t(np.array(values), level).half_width * (1 + 1e-9)  # type: ignore[operator]


def test_the_repeatability_has_the_pooled_scatter_and_the_degrees_of_freedom_of_pairs() -> None:
    found = of(VALUES, [1, 2, 1, 2, 1, 2])
    reach = stats.t.ppf(0.975, 66) * math.sqrt((1 + 4) / 2 / 6)
    assert bounds(found.repeatability) == pytest.approx((found.mean.estimate - reach, found.mean.estimate + reach))


def test_tau_of_sessions_of_equal_size_is_that_of_the_analysis_of_variance() -> None:
    found = of(VALUES)
    squares = 5 * np.var(VALUES, ddof=1)
    assert found.between.estimate == pytest.approx(math.sqrt(np.var(VALUES, ddof=1) - 1))
    low, high = (math.sqrt(squares / stats.chi2.ppf(share, 5) - 1) for share in (0.975, 0.025))
    assert bounds(found.between) == pytest.approx((low, high))


def test_another_run_lies_within_the_scatter_of_both_runs() -> None:
    assert of(EVEN).next_run.half_width == pytest.approx(2**0.5 * (of(EVEN).mean.half_width or 0))
    (_, high), (_, further) = bounds(of(VALUES).mean), bounds(of(VALUES).next_run)
    t = stats.t.ppf(0.975, 5) * (of(VALUES).standard_error or 0.0)
    assert further - np.mean(VALUES) == pytest.approx(math.hypot(high - np.mean(VALUES), t))
    arrays = np.array(EVEN), np.ones(6), np.full(6, FULL)
    half = stats.t.ppf(0.975, 5) * np.std(EVEN, ddof=1)
    assert across_sessions(*arrays, next_sessions=3).next_run.half_width == pytest.approx(
        half * math.sqrt(1 / 6 + 1 / 3)
    )
    with pytest.raises(ValueError, match="at least one session"):
        across_sessions(*arrays, next_sessions=0)


def test_reml_and_q_profile_give_the_published_figures_of_the_bcg_trials() -> None:
    """metafor: tau² 0.3132 (0.1197 to 1.1115), estimate -0.7145 with Knapp and Hartung's standard error 0.1808."""
    tau2 = reml_variances(BCG[None], BCG_VARIANCE[None])[0]
    assert tau2 == pytest.approx(0.3132, abs=2e-4)
    assert q_profile(BCG, BCG_VARIANCE) == pytest.approx((0.1197, 1.1115), abs=1e-3)
    fit = sessions._hartung_knapp(BCG[None], BCG_VARIANCE[None])
    assert (fit.mean[0], fit.error[0]) == pytest.approx((-0.7145, 0.1808), abs=2e-4)


def restricted_loss(tau2: float, y: Any, v: Any) -> float:
    """-2 times the restricted log-likelihood by matrices, as in textbooks of mixed models."""
    inverse = np.linalg.inv(np.diag(v + tau2))
    ones = np.ones((len(y), 1))
    information = ones.T @ inverse @ ones
    projection = inverse - inverse @ ones @ np.linalg.inv(information) @ ones.T @ inverse
    return float(np.log(v + tau2).sum() + np.linalg.slogdet(information)[1] + y @ projection @ y)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0, 4.0])
def test_reml_is_the_maximum_of_the_restricted_likelihood(ratio: float) -> None:
    rng = np.random.default_rng(SEED)
    variances = 1 / rng.integers(2, 13, (20, 7))
    values = rng.normal(0, 1, (20, 7)) * np.sqrt(variances + ratio)
    for y, v, tau2 in zip(values, variances, reml_variances(values, variances), strict=True):
        best = restricted_loss(tau2, y, v)
        assert all(best <= restricted_loss(float(other), y, v) + 1e-9 for other in np.linspace(0, 20, 400))


def test_fallback_search_equals_fisher_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(SEED)
    variances = 1 / rng.integers(2, 13, (30, 6))
    values = rng.normal(0, 1, (30, 6)) * np.sqrt(variances + 0.2)
    scored = reml_variances(values, variances)
    assert 0 < np.sum(scored == 0) < 30
    monkeypatch.setattr(sessions, "MOST_STEPS", 1)
    assert reml_variances(values, variances) == pytest.approx(scored, abs=1e-6)


def test_extremely_different_weights_give_a_finite_result() -> None:
    found = reml_variances(np.array([[0.0, 1, 2, 3], [1, 1, 1, 5]]), np.array([[1e-30, 1, 1, 1], [1e-20, 1, 9, 1e20]]))
    assert np.isfinite(found).all()
    assert (found >= 0).all()


def test_scoring_does_not_warn_or_diverge_at_any_scale() -> None:
    for scale in (1e-120, 1e-9, 1e9, 1e120):
        assert reml_variances(BCG[None] * scale, BCG_VARIANCE[None] * scale**2)[0] == pytest.approx(
            0.3132 * scale**2, rel=1e-3
        )


def test_sessions_of_unequal_size_weigh_by_their_pairs() -> None:
    found = of([1.0, 2, 3, 4], [0.5, 0.5, 0.5, 1.0], [12, 12, 12, 3])
    assert found.estimator == "reml-hartung-knapp"
    assert found.repeatability.estimate == found.mean.estimate
    assert found.mean.estimate < 2.5
    t = stats.t.ppf(0.975, 3) * (found.standard_error or 0.0)
    for end, further in zip(bounds(found.mean), bounds(found.next_run), strict=True):
        assert abs(further - found.mean.estimate) == pytest.approx(math.hypot(end - found.mean.estimate, t))


def test_interval_is_at_least_as_wide_as_scatter_within_sessions_implies() -> None:
    values, pairs = [1.0, 1.01, 0.99, 1.0, 1.005, 1.0], np.array([12, 12, 12, 12, 12, 4])
    found = of(values, list(np.sqrt(3.0 / pairs)), list(pairs))
    assert found.between.estimate == 0
    assert found.standard_error == pytest.approx(math.sqrt(3.0 / pairs.sum()))
    assert found.between.low is found.between.high is None


def test_nearly_equal_sizes_give_nearly_students_interval() -> None:
    plain, weighted = of(VALUES, 0.1, 1000), of(VALUES, 0.1, [1000] * 5 + [999])
    assert (plain.estimator, weighted.estimator) == ("student-t", "reml-hartung-knapp")
    assert bounds(weighted.mean) == pytest.approx(bounds(plain.mean), rel=1e-5)
    assert bounds(weighted.between) == pytest.approx(bounds(plain.between), rel=1e-4)


@pytest.mark.parametrize("sizes", [[12, 12], [12, 5]])
def test_two_sessions_have_no_interval_but_that_of_repeatability(sizes: list[int]) -> None:
    found = of([1.0, 2.0], 0.1, sizes)
    assert [one.low for one in (found.mean, found.between, found.next_run)] == [None] * 3
    assert [one.high for one in (found.mean, found.between, found.next_run)] == [None] * 3
    assert found.standard_error is None
    assert 1 < found.mean.estimate < 2
    assert found.between.estimate > 0
    assert found.repeatability.low is not None


def test_one_session_has_its_own_repeatability_and_no_tau() -> None:
    found = of([7.0], 0.5)
    assert (found.mean.estimate, found.mean.low, found.next_run.low, found.degrees) == (7.0, None, None, 0)
    assert math.isnan(found.between.estimate)
    assert found.between.low is None
    assert found.repeatability.half_width == pytest.approx(stats.t.ppf(0.975, 11) * 0.5)
    assert of([7.0], 0.5, 2).repeatability.low is None


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
@pytest.mark.parametrize("sizes", [[12] * 5, [12, 12, 12, 12, 5]])
def test_no_scatter_gives_no_interval_rather_than_one_of_no_width(value: float, sizes: list[int]) -> None:
    found = of([value] * 5, 0.0, sizes)
    assert all(one.low is one.high is None for one in (found.mean, found.between, found.next_run, found.repeatability))
    assert found.mean.estimate == value
    assert found.standard_error is None


def test_rounding_is_not_scatter() -> None:
    assert of([0.3, 0.1 + 0.2, 0.3, 0.3], 1e-18).mean.low is None
    assert of([0.3, 0.1 + 0.2, 0.3, 0.3], 1e-18).repeatability.low is None
    assert of([0.3, 0.1 + 0.2, 0.3, 0.3], 1e-18).between.low is None


def test_equal_values_of_sessions_with_scatter_within_keep_their_repeatability() -> None:
    found = of([5.0] * 6, 0.5)
    assert found.mean.low is None
    assert found.between == Interval(0.0, None, None, 0.95, 6)
    assert found.repeatability.low is not None


def test_sessions_that_agree_better_than_their_scatter_allows_fit_no_tau() -> None:
    assert of([1.0, 1.001, 0.999, 1.0005, 1.0], 1.0).between == Interval(0.0, None, None, 0.95, 5)
    assert of([1.0, 1.001, 0.999, 1.0005, 1.0], 1.0, [12, 12, 12, 12, 6]).between == Interval(0.0, None, None, 0.95, 5)
    assert of([1.0, 2.0, 1.5, 0.7, 1.2], 0.5).between.low == 0.0


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_non_finite_values_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        of([1.0, 2.0, wrong])
    with pytest.raises(ValueError, match="finite"):
        of([1.0, 2.0, 3.0], [1.0, wrong, 1.0])


def test_impossible_sessions_are_refused() -> None:
    for errors, pairs in ((-1.0, FULL), (1.0, 1), (1.0, 0)):
        with pytest.raises(ValueError, match="two pairs or more"):
            of([1.0, 2.0, 3.0], errors, pairs)
    for values, errors_of, counts in (([], [], []), ([1.0, 2.0], [1.0], [12, 12]), ([1.0, 2.0], [1.0, 1.0], [12])):
        with pytest.raises(ValueError, match="one entry for each session"):
            across_sessions(np.array(values), np.array(errors_of), np.array(counts, dtype=np.int64))


@st.composite
def measured(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Sessions with some scatter; of equal size or not."""
    k = draw(st.integers(3, 12))
    values = np.array(draw(st.lists(st.integers(-1000, 1000), min_size=k, max_size=k))) + 0.25 * np.arange(k) ** 2
    errors = np.array(draw(st.lists(st.integers(1, 400), min_size=k, max_size=k))) / 8
    pairs = draw(st.lists(st.integers(2, 12), min_size=k, max_size=k) | st.just([FULL] * k))
    return values, errors, np.array(pairs)


def numbers(found: AcrossSessions) -> list[float]:
    """Estimates and ends, without those that do not exist."""
    intervals = (found.mean, found.repeatability, found.next_run, found.between)
    return [number for one in intervals for number in (one.estimate, one.low, one.high) if number is not None]


@settings(max_examples=60, deadline=None)
@given(measured(), st.integers(-5000, 5000), st.sampled_from([0.25, 3.0, 1000.0]))
def test_results_are_equivariant_under_shift_and_scale(run: tuple[Any, Any, Any], shift: int, scale: float) -> None:
    values, errors, pairs = run
    plain, moved = across_sessions(*run), across_sessions(values * scale + shift, errors * scale, pairs)
    for name in ("mean", "repeatability", "next_run", "between"):
        one, other = getattr(plain, name), getattr(moved, name)
        by = 0 if name == "between" else shift
        assert (one.low is None) == (other.low is None)
        # tau near 0 is the root of a difference: it keeps half of the digits.
        assert other.estimate == pytest.approx(one.estimate * scale + by, rel=1e-6, abs=1e-3 * scale)
        if one.low is not None:
            assert (other.low, other.high) == pytest.approx(
                (one.low * scale + by, one.high * scale + by), rel=1e-6, abs=1e-3 * scale
            )


@settings(max_examples=60, deadline=None)
@given(measured(), st.randoms(use_true_random=False))
def test_the_order_of_sessions_does_not_matter(run: tuple[Any, Any, Any], shuffle: Any) -> None:
    order = list(range(len(run[0])))
    shuffle.shuffle(order)
    shuffled = across_sessions(*(column[order] for column in run))
    assert numbers(shuffled) == pytest.approx(numbers(across_sessions(*run)), rel=1e-6, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(measured())
def test_parts_of_a_result_are_consistent(run: tuple[Any, Any, Any]) -> None:
    found = across_sessions(*run)
    low, high = bounds(found.mean)
    assert run[0].min() <= found.mean.estimate <= run[0].max()
    assert found.next_run.low is not None
    assert found.next_run.low < low < found.mean.estimate < high
    reaches = found.mean.estimate - low, high - found.mean.estimate
    assert found.standard_error == pytest.approx(min(reaches) / special.stdtrit(found.degrees, 0.975))
    if found.estimator == "reml-hartung-knapp":
        assert (found.mean.half_width or 0) >= (found.repeatability.half_width or 0) * (1 - 1e-9)
    if found.between.low is not None:
        within = (run[1] ** 2 * run[2] * (run[2] - 1)).sum() / (run[2] - 1).sum() / run[2]
        for end, share in ((found.between.low, 0.975), (found.between.high or 0.0, 0.025)):
            w = 1 / (end**2 + within)
            q = (w * (run[0] - np.average(run[0], weights=w)) ** 2).sum()
            quantile = stats.chi2.ppf(share, found.degrees)
            assert q == pytest.approx(quantile, rel=1e-4) if end else q <= quantile
        assert found.between.high


Draw = Callable[[np.random.Generator, tuple[int, int]], Any]

EFFECTS: dict[str, Draw] = {
    "none": lambda _rng, shape: np.zeros(shape),
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "two modes": lambda rng, shape: 2.0 * (rng.random(shape) < 0.5) - 1,
    "a rare mode": lambda rng, shape: ((rng.random(shape) < 0.2) - 0.2) / 0.4,
    "exponential": lambda rng, shape: rng.exponential(1, shape) - 1,
}

SIZES = ["equal", "one in six lost", "one in four short", "lost and short"]


def sizes_of(k: int, sizes: str) -> Any:
    """The pairs of each of k sessions, or of fewer, where some are lost."""
    n = np.full(k - (max(1, k // 6) if "lost" in sizes else 0), FULL)
    if "short" in sizes:
        few = max(1, k // 4)
        n[:few] = [4, 3, 5, 9, 7][:few]
    return n


def simulated(rng: np.random.Generator, effects: str, scatter: float, pairs: Any, runs: int = RUNS) -> tuple[Any, Any]:
    """Values and standard errors of runs (rows) with `scatter` of single pairs; the truth is 0."""
    shape = (runs, len(pairs))
    values = EFFECTS[effects](rng, shape) + rng.normal(0, 1, shape) * scatter / np.sqrt(pairs)
    return values, scatter * np.sqrt(rng.chisquare(pairs - 1, shape) / (pairs - 1) / pairs)


def coverage(effects: str, scatter: float, k: int, sizes: str, runs: int = RUNS) -> tuple[float, float]:
    """The shares of runs whose interval of the mean holds the truth, and whose next run lies where it should."""
    rng = np.random.default_rng(SEED)
    pairs = sizes_of(k, sizes)
    measured = simulated(rng, effects, scatter, pairs, runs)
    here = mean_and_error_rows(*measured, pairs)
    after = mean_and_error_rows(*simulated(rng, effects, scatter, pairs, runs), pairs)
    reaches = reach_rows(*measured, pairs) * here[:, 1:]
    mean = float(np.mean((here[:, 0] <= reaches[:, 0]) & (-here[:, 0] <= reaches[:, 1])))
    off = here[:, 0] - after[:, 0]
    further = np.hypot(reaches, special.stdtrit(len(pairs) - 1, 0.975) * here[:, 1:])
    following = float(np.mean((off <= further[:, 0]) & (-off <= further[:, 1])))
    print(f"seed {SEED}: {effects}, scatter {scatter:g}, {k} {sizes}: mean {mean:.1%}, next run {following:.1%}")
    return mean, following


def test_simulated_run_is_analysed_like_a_measured_one() -> None:
    for sizes in SIZES:
        pairs = sizes_of(8, sizes)
        values, errors = simulated(np.random.default_rng(SEED), "normal", 2.0, pairs, 20)
        reaches = reach_rows(values, errors, pairs)
        for row, (mean, error) in enumerate(mean_and_error_rows(values, errors, pairs)):
            found = across_sessions(values[row], errors[row], pairs)
            assert (found.mean.estimate, found.standard_error) == pytest.approx((mean, error))
            low, high = bounds(found.mean)
            assert (mean - low, high - mean) == pytest.approx(tuple(reaches[row] * error))


LEAST = {
    ("exponential", 0.5): (0.93, 0.925), ("a rare mode", 2.0): (0.91, 0.93), ("a rare mode", 0.5): (0.66, 0.76),
}  # fmt: skip
"""The least coverage of the mean and of the next run where it is not 93 % of runs (20,000 runs a case).

A rare mode: of runs of 5 sessions 33 % do not meet it, and their intervals miss the mean.
"""

MOST = {("normal", True): 0.98, ("exponential", True): 0.98}
"""The greatest coverage where it is not 97 %, with sessions of unequal size: the factor q of at least 1.

Of two modes it is up to 100 %: a mean of few sessions takes few values, and where one mode has more of them than the
other, the interval reaches further to the side of that with fewer, on which the true mean is.
"""


def limits(effects: str, scatter: float, sizes: str) -> tuple[tuple[float, float], float]:
    """Between which shares the coverage of mean and next run must lie."""
    most = 1.0 if "mode" in effects else MOST.get((effects, sizes != "equal"), 0.97)
    return LEAST.get((effects, scatter), (0.93, 0.93)), most


@pytest.mark.parametrize("sizes", ["equal", "lost and short"])
@pytest.mark.parametrize("k", [6, 8, 12, 20])
@pytest.mark.parametrize("effects", ["normal", "two modes", "exponential"])
def test_interval_covers_the_truth_and_the_next_run(effects: str, k: int, sizes: str) -> None:
    """Session effects of 1.7 times the standard error within a full session."""
    mean, following = coverage(effects, 2.0, k, sizes)
    least, most = limits(effects, 2.0, sizes)
    assert least[0] <= mean <= most
    assert least[1] <= following <= most


@pytest.mark.proof
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("k", [6, 8, 12, 20])
@pytest.mark.parametrize("scatter", [2.0, 0.5])
@pytest.mark.parametrize("effects", ["normal", "two modes", "exponential", "a rare mode"])
def test_interval_has_its_coverage_in_twenty_thousand_runs(
    effects: str, scatter: float, k: int, sizes: str, proven: Callable[..., None]
) -> None:
    runs = 20_000
    mean, following = coverage(effects, scatter, k, sizes, runs)
    kind = "with a mode that few beds meet: a known limit" if effects == "a rare mode" else "by law of their effects"
    proven("coverage", f"mean over beds, {kind}", held=mean * runs, of=runs)
    proven("coverage", f"next run's mean, beds {kind}", held=following * runs, of=runs)
    least, most = limits(effects, scatter, sizes)
    assert least[0] <= mean <= most
    assert least[1] <= following <= most


@pytest.mark.parametrize("k", [6, 20])
def test_rare_mode_is_missed_by_few_sessions(k: int) -> None:
    """What no interval can know is written down: its figures are in the docstring of `across_sessions`."""
    mean, _ = coverage("a rare mode", 0.5, k, "equal")
    assert mean == pytest.approx({6: 0.75, 20: 0.983}[k], abs=0.015)


@pytest.mark.parametrize(("sizes", "most"), [("equal", 0.97), ("lost and short", 0.997)])
@pytest.mark.parametrize("k", [6, 20])
def test_interval_without_session_effects_covers_and_is_wide_for_unequal_sessions(
    k: int, sizes: str, most: float
) -> None:
    """The factor q of at least 1 is for this case, and it is paid for."""
    mean, following = coverage("none", 2.0, k, sizes)
    assert 0.93 <= mean <= most
    assert 0.93 <= following <= most


def tau_coverage(effects: str, scatter: float, k: int, sizes: str, runs: int) -> float:
    pairs = sizes_of(k, sizes)
    values, errors = simulated(np.random.default_rng(SEED), effects, scatter, pairs, runs)
    within = (errors**2 * pairs * (pairs - 1)).sum(axis=1)[:, None] / (pairs - 1).sum() / pairs
    found = [q_profile(y, v) for y, v in zip(values, within, strict=True)]
    held = sum(one is not None and one[0] <= 1 <= one[1] for one in found) / runs
    print(f"seed {SEED}: tau, {effects}, scatter {scatter:g}, {k} {sizes}: {held:.1%}")
    return held


@pytest.mark.parametrize(("k", "sizes", "runs"), [(6, "equal", 2000), (20, "equal", 2000), (8, "lost and short", 1000)])
def test_the_interval_of_tau_holds_for_normal_effects(k: int, sizes: str, runs: int) -> None:
    assert 0.93 <= tau_coverage("normal", 2.0, k, sizes, runs) <= 0.97


def test_interval_of_tau_undercovers_for_skewed_effects() -> None:
    """Chi-square knows no kurtosis: 80 % with 6 sessions, 74 % with 20. With two modes it is too wide."""
    assert tau_coverage("exponential", 0.5, 6, "equal", 2000) == pytest.approx(0.80, abs=0.03)
    assert tau_coverage("exponential", 0.5, 20, "equal", 2000) == pytest.approx(0.74, abs=0.03)
    assert tau_coverage("two modes", 2.0, 8, "equal", 2000) > 0.97


@pytest.mark.parametrize("sizes", ["equal", "lost and short"])
def test_repeatability_interval_covers_only_without_session_effects(sizes: str) -> None:
    pairs = sizes_of(8, sizes)
    rng = np.random.default_rng(SEED)
    held = {}
    for effects, runs in (("none", 1000), ("normal", 200)):
        values, errors = simulated(rng, effects, 2.0, pairs, runs)
        held[effects] = np.mean(
            [not across_sessions(y, e, pairs).repeatability.excludes(0.0) for y, e in zip(values, errors, strict=True)]
        )
    print(f"seed {SEED}: repeatability, {sizes}: {held}")
    assert 0.93 <= held["none"] <= 0.97
    assert held["normal"] < 0.8
