"""The estimators against SciPy and against what they must satisfy whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sojourn.statistics import signed_rank
from sojourn.statistics.discovery import benjamini_hochberg, greater_p, selected_level, signed_rank_p
from sojourn.statistics.interval import student_t
from sojourn.statistics.line import deviations, fit, hotelling
from sojourn.statistics.modes import find_modes
from sojourn.statistics.period import find_period, slow_ones
from sojourn.statistics.proportion import clopper_pearson, share_by_rounds
from sojourn.statistics.quantile import allowed, quantile_by_rounds, sd_by_rounds
from sojourn.statistics.signed_rank import critical_rank, hodges_lehmann, least_pairs, signed_rank_cdf
from sojourn.statistics.trend import theil_sen, trend

SEED = 20_261_125

differences = st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=40).map(lambda d: np.array(d, dtype=np.float64))


@given(differences)
def test_hodges_lehmann_lies_within_its_bounds_which_are_walsh_averages(d: np.ndarray) -> None:
    found = hodges_lehmann(d)
    assert found.low is not None
    assert found.high is not None
    assert d.min() <= found.low <= found.estimate <= found.high <= d.max()
    assert found.level >= 0.95


@given(differences, st.integers(-1000, 1000), st.sampled_from([0.5, 2.0, 4.0]))
def test_hodges_lehmann_is_equivariant_under_shift_and_scale(d: np.ndarray, shift: int, scale: float) -> None:
    d = np.round(d)
    plain, moved = hodges_lehmann(d), hodges_lehmann(d * scale + shift)
    assert moved.estimate == pytest.approx(plain.estimate * scale + shift)
    assert plain.low is not None
    assert moved.low == pytest.approx(plain.low * scale + shift)
    assert moved.half_width == pytest.approx(plain.scaled(scale).half_width)


@given(differences)
def test_hodges_lehmann_is_symmetric_under_negation(d: np.ndarray) -> None:
    plain, mirrored = hodges_lehmann(d), hodges_lehmann(-d)
    assert mirrored.estimate == pytest.approx(-plain.estimate)
    assert (mirrored.low, mirrored.high) == (-plain.high, -plain.low)  # type: ignore[operator]


@settings(max_examples=50)
@given(st.lists(st.floats(-100, 100), min_size=6, max_size=20, unique=True))
def test_the_interval_is_what_wilcoxon_does_not_reject(values: list[float]) -> None:
    d = np.array(values) + 1e-3 * np.arange(len(values))
    found = hodges_lehmann(d)
    assert found.low is not None
    assert found.high is not None
    span = max(found.high - found.low, 1e-6)
    inside = stats.wilcoxon(d - (found.estimate + 1e-9 * span), method="exact").pvalue
    outside = stats.wilcoxon(d - (found.high + 0.01 * span + 1e-6), method="exact").pvalue
    assert inside > 0.05 - 1e-9
    assert outside <= 1 - found.level + 1e-9 or outside <= 0.05


def test_below_six_pairs_there_is_no_interval_and_below_eleven_none_of_99_9() -> None:
    assert hodges_lehmann(np.arange(5.0)).low is None
    assert hodges_lehmann(np.arange(6.0)).low is not None
    assert hodges_lehmann(np.arange(10.0), 0.999).low is None
    assert hodges_lehmann(np.arange(11.0), 0.999).low is not None
    assert (least_pairs(0.95), least_pairs(0.999)) == (6, 11)


@pytest.mark.parametrize(("n", "level"), [(6, 0.96875), (8, 0.9609375), (12, 0.95751953125)])
def test_the_exact_level_is_returned(n: int, level: float) -> None:
    assert critical_rank(n, 0.95)[1] == pytest.approx(level)


def test_rank_sum_test_equals_scipy() -> None:
    d = np.array([3.0, -1, 4, 1.5, 5, -9, 2, 6.5])
    assert signed_rank_p(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
    assert signed_rank_cdf(8)[-1] == pytest.approx(1)


def test_algorithm_for_many_pairs_equals_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    d = np.random.default_rng(5).normal(size=300)
    laid_out = hodges_lehmann(d)
    monkeypatch.setattr(signed_rank, "WALSH_UP_TO", 100)
    counted = hodges_lehmann(d)
    assert counted.estimate == pytest.approx(laid_out.estimate)
    assert (counted.low, counted.high) == pytest.approx((laid_out.low, laid_out.high))


def test_one_outlier_moves_the_average_but_not_hodges_lehmann() -> None:
    d = np.array([9.0, 10, 11, 10.5, 9.5, 10.2, 9.8, 10.1, 9.9, 10.3, 9.7, 4000])
    found = hodges_lehmann(d)
    assert found.estimate == pytest.approx(10, abs=0.3)
    assert found.high is not None
    assert found.high < 12
    assert student_t(d).estimate > 300


@pytest.mark.parametrize(("k", "n"), [(0, 100), (3, 100), (100, 100), (17, 5000)])
def test_clopper_pearson_equals_scipy(k: int, n: int) -> None:
    found, reference = clopper_pearson(k, n), stats.binomtest(k, n).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_false_discovery_control_equals_scipy(p: list[float]) -> None:
    assert benjamini_hochberg(np.array(p)) == pytest.approx(stats.false_discovery_control(p))


def test_theil_sen_equals_scipy() -> None:
    rng = np.random.default_rng(1)
    x = np.arange(40.0)
    y = 3 * x + rng.standard_t(2, 40)
    assert theil_sen(x, y) == pytest.approx(stats.theilslopes(y, x).slope)
    assert trend(x, y).p < 1e-9
    assert trend(x, rng.normal(size=40)).p > 1e-3


def test_ties_are_no_trend() -> None:
    """A delay that is now and then one step higher, evenly over the run, does not drift."""
    values = np.zeros(100)
    values[::10] = 1.0
    assert trend(np.arange(100.0), values).p > 0.1


def test_line_without_noise_is_fitted_exactly() -> None:
    x = np.array([64.0, 512, 1518])
    y = np.tile(1300 + 0.4 * x, (8, 1)) + np.arange(8)[:, None]
    line = fit(x, y)
    assert line.slope.estimate == pytest.approx(0.4)
    assert line.intercept.estimate == pytest.approx(1303.5)
    assert deviations(x, y).largest.estimate == pytest.approx(0, abs=1e-9)


def test_step_is_not_fitted_as_a_line() -> None:
    rng = np.random.default_rng(2)
    x = np.array([64.0, 256, 512, 1024, 1518])
    bent = deviations(x, np.where(x > 600, 900.0, 500.0) + rng.normal(0, 20, (12, 5)))
    straight = deviations(x, 500 + 0.4 * x + rng.normal(0, 20, (12, 5)))
    assert bent.p is not None
    assert straight.p is not None
    assert bent.p < 1e-4 < straight.p
    assert bent.beyond(50) is not None
    assert straight.lie_within(60)


def test_hotelling_test_has_its_stated_level() -> None:
    rng = np.random.default_rng(3)
    rejected = np.mean([(hotelling(rng.normal(size=(12, 3))) or 1) < 0.05 for _ in range(2000)])
    assert 0.035 < rejected < 0.065
    assert hotelling(np.zeros((12, 2))) is None
    assert hotelling(rng.normal(size=(3, 3))) is None


def test_quantiles_need_ten_values_beyond_them() -> None:
    assert allowed(0.99, 1000)
    assert not allowed(0.99, 999)
    assert not allowed(0.5, 10)


def test_a_quantile_stays_within_its_values_and_few_rounds_give_no_interval() -> None:
    values = np.random.default_rng(4).pareto(1.2, 4000)
    found = quantile_by_rounds(values, np.repeat(np.arange(10), 400), 0.9975)
    assert found.low is not None
    assert found.high is not None
    assert values.min() <= found.low <= found.estimate <= found.high <= values.max()
    assert quantile_by_rounds(values, np.repeat(np.arange(2), 2000), 0.5).low is None


def test_a_spread_under_heavy_tails_has_no_interval() -> None:
    rng = np.random.default_rng(4)
    of_round = np.repeat(np.arange(12), 80)
    assert sd_by_rounds(rng.normal(0, 1, 960), of_round).low is not None
    assert sd_by_rounds(rng.pareto(1.5, 960), of_round).low is None
    assert sd_by_rounds(np.ones(960), of_round).low is None


@pytest.mark.parametrize("every", [7, 50, 117])
def test_a_period_is_found_among_jitter_and_stray_outliers(every: int) -> None:
    rng = np.random.default_rng(6)
    n = 40 * every
    rtt = rng.gamma(4, 150, n) + 20_000
    rtt[every // 3 :: every] += 20_000
    rtt[rng.integers(0, n, 5)] += 50_000
    found = find_period(np.flatnonzero(slow_ones(rtt)), n)
    assert found is not None
    assert found.every == every


def test_random_values_and_bursts_have_no_period() -> None:
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(200):
        n = 3000
        stray = np.sort(rng.choice(n, rng.integers(6, 80), replace=False))
        burst = int(rng.integers(0, n - 100))
        alarms += find_period(stray, n) is not None
        alarms += find_period(np.arange(burst, burst + 60), n) is not None
    assert alarms == 0


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.normal(20_000, 500, 2000),
        lambda rng: 10_000 + rng.gamma(2, 500, 2000),
        lambda rng: 10_000 + 500 * rng.pareto(1.5, 2000),
        lambda rng: np.round(rng.normal(20_000, 500, 2000), -3),
        lambda rng: rng.uniform(0, 1000, 2000),
        lambda rng: rng.normal(20_000, 500, 400),
    ],
    ids=["Gaussian", "skewed", "heavy tail", "coarse clock", "uniform", "small"],
)
def test_one_mode_is_not_split(draw: object) -> None:
    rng = np.random.default_rng(8)
    several = [find_modes(draw(rng)) for _ in range(100)]  # type: ignore[operator]
    assert sum(len(modes) > 1 for modes in several) == 0


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_two_modes_are_found(share: float) -> None:
    rng = np.random.default_rng(9)
    modes = find_modes(rng.normal(20_000, 500, 1500) + 5000 * (rng.random(1500) < share))
    assert modes == pytest.approx([20_000, 25_000], abs=300)


def test_uncertainty_of_a_share_comes_from_trials_not_frames() -> None:
    """Twelve trials with shares of 68 to 92 %: Student's interval over them, not binomial over frames."""
    shares = np.linspace(0.68, 0.92, 12)
    within = np.concatenate([np.arange(1000) < round(1000 * share) for share in shares])
    found = share_by_rounds(within, np.repeat(np.arange(12), 1000))
    over_trials = student_t(shares)
    assert found.low == pytest.approx(over_trials.low, abs=0.01)
    assert found.high == pytest.approx(over_trials.high, abs=0.01)


@pytest.mark.parametrize("n", [1, 7, 40, 150, 260])
def test_rank_and_mean_tests_equal_scipy_also_with_ties_and_zeros(n: int) -> None:
    rng = np.random.default_rng(SEED)
    for values in (rng.normal(0.1, 1, n), np.round(rng.normal(0.1, 1, n) * 2)):
        method = {"method": "exact"} if n <= signed_rank.EXACT_UP_TO else {"method": "approx", "correction": True}
        known = stats.wilcoxon(values, zero_method="zsplit", **method)
        assert signed_rank_p(values) == pytest.approx(known.pvalue, rel=1e-9)
        if n >= 8:
            times = np.round(np.sort(rng.random(n)) * 50)
            assert trend(times, values).p == pytest.approx(stats.spearmanr(times, values).pvalue, rel=1e-9)
            welch = stats.ttest_ind(values, times[:6], equal_var=False, alternative="greater")
            assert greater_p(values, times[:6]) == pytest.approx(welch.pvalue, rel=1e-9)


@pytest.mark.parametrize("runs", [100, pytest.param(250, marks=pytest.mark.proof)])
def test_intervals_of_selected_figures_keep_their_coverage(runs: int) -> None:
    """Of 20 figures the significant ones alone: the mean share that misses the truth, 0 of a run that chooses none."""
    rng, missed = np.random.default_rng(SEED), np.zeros(2)
    for _ in range(runs):
        truth = np.where(np.arange(20) < 2, 0.4, 0.0)
        values = truth[:, None] + rng.normal(0, 1, (20, 24))
        q = benjamini_hochberg(np.array([signed_rank_p(one) for one in values]))
        chosen = np.flatnonzero(q <= 0.05)
        for at, level in enumerate((0.95, selected_level(q, 0.05))):
            misses = sum(hodges_lehmann(values[one], level).excludes(float(truth[one])) for one in chosen)
            missed[at] += misses / max(1, len(chosen)) / runs
    print(f"seed {SEED}: of the chosen intervals {missed[0]:.3f} plain and {missed[1]:.3f} adjusted ones miss")
    assert missed[0] > missed[1]
    assert missed[1] <= 0.05 + 0.02
