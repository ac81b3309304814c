"""Do the intervals of streams hold the truth in 93 to 97 % of runs: of quantiles with losses, loss ratios, widths?

A run is some trials, each with its own luck; a truth is of all packets that such runs could have had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from sojourn.analysis.rates import jain
from sojourn.analysis.streams import over_trials
from sojourn.statistics.proportion import korn_graubard
from sojourn.statistics.quantile import mean_by_rounds, quantile_by_rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.statistics.interval import Interval

RUNS, TRIALS, PACKETS = 600, 20, 400
SEED = 20001001


def share(judge: Callable[[np.random.Generator], Interval], truth: float) -> float:
    """The share of runs whose interval holds the truth."""
    rng = np.random.default_rng(SEED)
    held = [one.low is not None and one.high is not None and one.low <= truth <= one.high
            for one in (judge(rng) for _ in range(RUNS))]  # fmt: skip
    print(f"seed {SEED}: {np.mean(held):.3f} of {RUNS} runs hold {truth}")
    return float(np.mean(held))


def delays(rng: np.random.Generator) -> Any:
    """Trials by packets: normal, the trials' own levels among them, so that the whole is normal with sd 1000."""
    return 10_000 + rng.normal(0, 280, (TRIALS, 1)) + rng.normal(0, 960, (TRIALS, PACKETS))


# Trials whose levels differ as much as a third of the packets' spread make a tail a matter of few trials: 92 % at p99.
@pytest.mark.parametrize(
    ("p", "loss", "least"),
    [
        pytest.param(0.5, 0.0, 0.93, marks=pytest.mark.proof),
        pytest.param(0.5, 0.05, 0.93, marks=pytest.mark.proof),
        (0.9, 0.05, 0.93),
        pytest.param(0.99, 0.005, 0.905, marks=pytest.mark.proof),
    ],
)
def test_intervals_of_quantiles_with_losses_have_their_coverage(
    p: float, loss: float, least: float, proven: Callable[..., None]
) -> None:
    numbers = np.repeat(np.arange(TRIALS), PACKETS)

    def judge(rng: np.random.Generator) -> Interval:
        lost = rng.random((TRIALS, PACKETS)) < loss
        values = np.where(lost, np.inf, delays(rng)).ravel()
        return quantile_by_rounds(values, numbers, p)

    held = share(judge, float(stats.norm(10_000, 1000).ppf(p / (1 - loss))))
    proven("coverage", "quantiles of streams, losses among them", held=held * RUNS, of=RUNS)
    assert least <= held <= 0.97


def test_quantile_within_the_lost_packets_is_infinite() -> None:
    rng = np.random.default_rng(SEED)
    values = np.where(rng.random(8000) < 0.02, np.inf, 1.0)
    found = quantile_by_rounds(values, np.repeat(np.arange(20), 400), 0.99)
    assert found.estimate == float("inf")
    assert found.high == float("inf")


def test_binned_delays_give_the_same_result_as_packets() -> None:
    rng = np.random.default_rng(SEED)
    values, numbers = rng.integers(0, 50, 8000).astype(float), np.repeat(np.arange(20), 400)
    keys, counts = np.unique(np.stack([numbers, values]), axis=1, return_counts=True)
    weights, which, bins = counts.astype(float), keys[0].astype(np.int64), keys[1]
    assert mean_by_rounds(bins, which, weights=weights).low == pytest.approx(mean_by_rounds(values, numbers).low)
    binned, whole = quantile_by_rounds(bins, which, 0.9, weights=weights), quantile_by_rounds(values, numbers, 0.9)
    assert binned.estimate == pytest.approx(whole.estimate, abs=1)
    assert (binned.low, binned.high) == pytest.approx((whole.low, whole.high), abs=1)


def bursts(rng: np.random.Generator) -> Any:
    """Losses of runs of ten: a tenth as many beginnings, each of which takes ten packets."""
    return 10 * rng.binomial(PACKETS // 10, 0.05, TRIALS).astype(float)


def alone(rng: np.random.Generator) -> Any:
    return rng.binomial(PACKETS, 0.05, TRIALS).astype(float)


def uneven(rng: np.random.Generator) -> Any:
    return rng.binomial(PACKETS, rng.beta(5, 95, TRIALS)).astype(float)


@pytest.mark.parametrize("losses", [alone, bursts, uneven])
def test_intervals_of_loss_ratios_cover_also_for_bursts(losses: Callable[[np.random.Generator], Any]) -> None:
    held = share(lambda rng: korn_graubard(losses(rng), np.full(TRIALS, float(PACKETS))), 0.05)
    assert 0.93 <= held <= 0.985  # an exact interval of counts is never too narrow


@pytest.mark.parametrize("clusters", [3, 6, 10, 20, 50])
@pytest.mark.parametrize("correlation", [0.0, 0.01, 0.1, 0.5, 0.95])
def test_intervals_of_shares_cover_for_any_clustering(clusters: int, correlation: float) -> None:
    """Beta-binomial clusters, from independent frames to trials that lose nearly all or nothing."""
    rng, runs = np.random.default_rng(SEED + clusters), 2000
    held = {}
    for truth in (0.001, 0.01, 0.1, 0.5):
        shares = np.full((runs, clusters), truth)
        if correlation:
            shape = 1 / correlation - 1
            shares = rng.beta(truth * shape, (1 - truth) * shape, (runs, clusters))
        found = (korn_graubard(one, np.full(clusters, 1000.0)) for one in rng.binomial(1000, shares).astype(float))
        held[truth] = 1 - sum(one.excludes(truth) for one in found) / runs
    print(f"seed {SEED + clusters}: {clusters} clusters, correlation {correlation}: {held}")
    assert min(held.values()) >= 0.92


def test_zero_share_has_an_upper_limit_by_trials_and_few_trials_no_interval() -> None:
    none, size = np.zeros(10), np.full(10, 1e6)
    bound = korn_graubard(none, size)
    assert bound.low == 0.0
    assert bound.high == pytest.approx(1 - 0.05**0.1)
    all_ = korn_graubard(size, size)
    assert all_.low == pytest.approx(0.05**0.1)
    assert all_.high == 1.0
    assert korn_graubard(np.array([1.0, 2.0]), np.full(2, 100.0)).low is None
    single = korn_graubard(np.eye(10)[0] * 5, size)
    assert single.high is not None
    assert single.estimate < single.high < 1 - 0.05**0.1, "a loss in one trial of ten says little of its size"


def test_intervals_of_delay_spreads_have_their_coverage() -> None:
    held = share(lambda rng: over_trials(rng.normal(0, 500, (TRIALS, PACKETS)).std(axis=1, ddof=1)), 500.0)
    assert 0.93 <= held <= 0.975


@pytest.mark.parametrize("trials", [4, 6, 16])
def test_intervals_of_rates_cover_with_few_trials(trials: int) -> None:
    held = share(lambda rng: over_trials(rng.normal(400_000, 3000, trials)), 400_000)
    assert 0.93 <= held <= 0.975


def test_fairness_is_one_for_equal_shares_and_1_over_n_for_one_taking_all() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == pytest.approx(1)
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert jain(np.zeros(3)) == 1
