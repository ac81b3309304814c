"""The numbers behind an emulator's checks against known values, and how often their tests alarm and intervals cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import special, stats

from sojourn.methods.emulator.analyse.pipe import Jitter, Pipe
from sojourn.statistics import cdf
from sojourn.statistics.anderson import anderson_darling, probability
from sojourn.statistics.chain import Chain, bernoulli, dwelling, four_states, gilbert_elliott
from sojourn.statistics.proportion import worth_pearson
from sojourn.statistics.randomness import age_test, autocorrelation, ljung_box, run_lengths, runs_test
from sojourn.statistics.service import busy_rows, misses, rate_in_windows
from sojourn.statistics.ticks import find_tick
from tests.unit.made_up_link import leave

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray

SEED = 71_121
CHAINS = {
    "bernoulli": bernoulli(0.1),
    "gilbert": gilbert_elliott(0.02, 0.3, 0.0, 1.0),
    "elliott": gilbert_elliott(0.02, 0.3, 0.3, 0.99),
    "salsano": four_states(0.02, 0.3, 0.2, 0.1, 0.01),
    "dwell": dwelling(50e6, 5e6, 1e6),
}


def walk(chain: Chain, rng: np.random.Generator, runs: int, n: int) -> NDArray[np.bool_]:
    """Several rows of losses, all at once."""
    states = rng.choice(len(chain.loses), size=runs, p=chain.stationary)
    cumulated, found = chain.moves.cumsum(axis=1), np.zeros((runs, n), dtype=np.bool_)
    for i in range(n):
        found[:, i] = rng.random(runs) < chain.loses[states]
        states = (cumulated[states] < rng.random(runs)[:, None]).sum(axis=1).clip(max=len(chain.loses) - 1)
    return found


def geometric(chance: float) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """The hazard of a law without memory."""
    return lambda ages: np.full(len(ages), chance)


def test_published_points_of_anderson_darling_are_reproduced() -> None:
    for a2, level in ((1.933, 0.90), (2.492, 0.95), (3.070, 0.975), (3.857, 0.99)):
        assert probability(a2, 10**6) == pytest.approx(level, abs=5e-4)


def test_p_value_of_anderson_darling_is_uniform() -> None:
    rng = np.random.default_rng(SEED)
    p = np.array([anderson_darling(rng.random(n)).p for n in (10, 100, 1000) for _ in range(1000)])
    for level in (0.01, 0.05, 0.5):
        assert (p < level).mean() == pytest.approx(level, abs=4 * (level * (1 - level) / len(p)) ** 0.5)
    assert anderson_darling(rng.beta(1.2, 1, 2000)).p < 1e-6


@pytest.mark.parametrize("name", CHAINS)
def test_loss_chains_have_their_stated_rate_and_variance(name: str) -> None:
    chain, rng = CHAINS[name], np.random.default_rng(SEED)
    rows = walk(chain, rng, 1500, 2000)
    shares = rows.mean(axis=1)
    spread = (chain.loss * (1 - chain.loss) * chain.inflation / rows.shape[1]) ** 0.5
    assert shares.mean() == pytest.approx(chain.loss, abs=5 * spread / len(rows) ** 0.5)
    assert shares.std() == pytest.approx(spread, rel=0.08)
    assert run_lengths(list(rows), value=True).mean() == pytest.approx(
        chain.loss / (chain.loss - chain.both(1)), rel=0.03
    )
    found = autocorrelation([row.astype(np.float64) for row in rows], 3, chain.loss)
    assert found.estimate == pytest.approx(chain.correlation(3), abs=0.01)


@pytest.mark.parametrize("name", CHAINS)
def test_intervals_of_losses_have_their_coverage(name: str) -> None:
    """Of 1000 runs, 93 to 97.5 of a hundred intervals hold the truth, also where losses come in bursts."""
    chain, rng = CHAINS[name], np.random.default_rng(SEED)
    rows = walk(chain, rng, 1000, 4000)
    worth = rows.shape[1] / chain.inflation
    held = 0
    for row in rows:
        value = worth_pearson(int(row.sum()), len(row), worth)
        held += value.low is not None and value.high is not None and value.low <= chain.loss <= value.high
    assert 930 <= held <= 978


@pytest.mark.parametrize("runs", [300, pytest.param(1000, marks=pytest.mark.proof)])
def test_randomness_tests_have_their_stated_level(runs: int) -> None:
    rng = np.random.default_rng(SEED)
    ends = {True: 0.9, False: 0.1}
    found: dict[str, list[float]] = {"runs": [], "box": [], "bursts": [], "gaps": []}
    for _ in range(runs):
        rows = list(rng.random((2, 1500)) < 0.1)
        found["runs"].append(runs_test(rows).p)
        found["box"].append(ljung_box([row.astype(np.float64) for row in rows], 10).p)
        for name, value in (("bursts", True), ("gaps", False)):
            found[name].append(age_test(rows, value, geometric(ends[value])).p)
    for name, p in found.items():
        assert 0.03 <= np.mean(np.array(p) < 0.05) <= 0.075, name


def test_randomness_tests_detect_dependence() -> None:
    rng = np.random.default_rng(SEED)
    bursts = list(walk(CHAINS["gilbert"], rng, 2, 5000))
    every = [np.arange(5000) % 10 == 0]
    share = CHAINS["gilbert"].loss
    for rows, chance in ((bursts, share), (every, 0.1)):
        assert runs_test(rows).p < 1e-4
        assert age_test(rows, value=False, hazard=geometric(chance)).p < 1e-4
        assert ljung_box([row.astype(np.float64) for row in rows], 10).p < 1e-4


def test_censored_runs_at_the_end_of_a_trial_cause_no_bias() -> None:
    """Short trials: gaps of a mean of 50 in rows of 60. Lengths of whole gaps alone would be far too short."""
    rng = np.random.default_rng(SEED)
    p = [age_test(list(rng.random((200, 60)) < 0.02), value=False, hazard=geometric(0.02)).p for _ in range(300)]
    assert 0.02 <= np.mean(np.array(p) < 0.05) <= 0.09


def test_correlations_have_intervals_that_cover() -> None:
    rng = np.random.default_rng(SEED)
    held = 0
    for _ in range(400):
        z = rng.normal(size=3000)
        for i in range(1, len(z)):
            z[i] = 0.5 * z[i - 1] + 0.75**0.5 * z[i]
        value = autocorrelation([z], 2, 0.0)
        held += value.low is not None and value.high is not None and value.low <= 0.25 <= value.high
    assert 0.92 <= held / 400 <= 0.98


JITTERS: dict[str, tuple[dict[str, Any], Any]] = {
    "uniform": ({"spread": 1e6}, stats.uniform(-1e6, 2e6)),
    "normal": ({"sd": 1e6}, stats.norm(0, 1e6)),
    "exponential": ({"mean": 1e6}, stats.expon(0, 1e6)),
    "pareto": ({"scale": 1e6, "shape": 3.0}, stats.lomax(3.0, 0, 1e6)),
    "gamma": ({"shape": 2.5, "scale": 1e6}, stats.gamma(2.5, 0, 1e6)),
}


@pytest.mark.parametrize("name", JITTERS)
def test_distributions_equal_those_of_scipy(name: str) -> None:
    told, law = JITTERS[name]
    jitter, x = Jitter(name, told), np.linspace(-2e6, 8e6, 101)
    assert jitter.cdf(x) == pytest.approx(law.cdf(x), abs=1e-12)
    assert jitter.mean == pytest.approx(law.mean(), abs=1)
    assert jitter.sd == pytest.approx(law.std(), rel=1e-9)


def test_empirical_and_table_distributions_are_evaluated() -> None:
    own = Jitter("empirical", {"points": [[0.0, 0], [0.5, 1000], [1.0, 5000]]})
    assert own.cdf(np.array([-1.0, 500.0, 1000.0, 3000.0, 9000.0])) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert own.mean == pytest.approx(0.5 * 500 + 0.5 * 3000)
    table = Jitter("table", {"sd": 8192, "values": [-10, 0, 0, 10]})
    assert table.cdf(np.array([-11.0, -10.0, 0.0, 10.0])) == pytest.approx([0, 0.25, 0.75, 1])
    assert table.sd == pytest.approx(50**0.5)


def test_a_mean_delay_counts_what_is_cut_at_zero() -> None:
    """Normal around 1 ms with 1 ms: of the draws below zero nothing is left but zeros."""
    pipe = Pipe({"delay": {"constant": 10**6, "jitter": {"normal": {"sd": 10**6}}}})
    draws = np.maximum(0, np.random.default_rng(SEED).normal(1e6, 1e6, 10**6))
    assert pipe.mean_delay_ns == pytest.approx(draws.mean(), rel=0.003)


def test_distribution_distance_and_its_confidence_band_are_correct() -> None:
    rng = np.random.default_rng(SEED)
    beyond = 0
    for _ in range(1000):
        beyond += cdf.distance(rng.normal(size=500), special.ndtr) > cdf.band(500, 0.05)
    assert beyond <= 70
    z = rng.normal(size=20_000)
    assert cdf.distance(z + 0.1, special.ndtr) == pytest.approx(0.04, abs=0.012)
    assert cdf.distance(z + 0.1, special.ndtr, slack=0.1) < cdf.band(20_000, 0.01)


def test_tick_is_found_with_its_size() -> None:
    rng, tick = np.random.default_rng(SEED), 1e6 * (1 + 3e-5)
    for poisson in (True, False):
        at = np.cumsum(rng.exponential(1e6, 3000) if poisson else np.full(3000, 1.003e6))
        saw = np.floor((at + 5e6) / tick) * tick - at - 5e6
        found = find_tick([at], [saw + rng.normal(0, 2e4, len(at))])
        assert found is not None
        value = found.within(0.01)
        assert value.estimate == pytest.approx(1e6, rel=0.1)
        assert value.low is not None
        assert value.low > 8e5


def test_no_tick_is_found_without_one() -> None:
    rng = np.random.default_rng(SEED)
    alarms = 0
    for _ in range(200):
        times = [np.cumsum(rng.exponential(1e6, 400)) for _ in range(3)]
        found = find_tick(times, [rng.gamma(2, 3000, 400) for _ in times])
        assert found is not None
        alarms += found.p < 0.05
    assert alarms <= 20


@pytest.mark.parametrize("trials", [2, 8])
def test_a_stall_of_a_third_of_a_trial_is_no_tick(trials: int) -> None:
    """A stall of 45 ms holds up a third of the packets of one trial; all of them leave at its end."""
    rng = np.random.default_rng(SEED)
    times = [np.cumsum(rng.exponential(1e6, 120)) for _ in range(trials)]
    errors = [rng.gamma(2, 300, 120) for _ in times]
    end = times[1][40] + 45e6
    held = (times[1] >= times[1][40]) & (times[1] < end)
    errors[1][held] += end - times[1][held]
    found = find_tick(times, errors)
    assert found is not None
    # What is left of the stall is six times the interquartile range of some 0.5 µs, in a third of one trial of two.
    assert found.within(0.01).estimate < 3_000


def test_link_serves_packets_one_at_a_time() -> None:
    entered = np.array([0, 0, 100, 5_000_000]) + 1_900_000_000_000_000_000
    bits = np.array([8000, 4000, 8000, 8000])
    left = leave(entered, bits, 10_000_000)
    assert (left - entered[0]).tolist() == [800_000, 1_200_000, 2_000_000, 5_800_000]
    assert np.abs(misses(entered, left, bits, 10_000_000)).max() < 1
    assert [(part.start, part.stop) for part in busy_rows(entered, left)] == [(0, 3)]


def test_fractional_nanoseconds_are_carried() -> None:
    """1000 bits at 3 bit/ns: no nanosecond is lost in a million packets."""
    bits = np.full(1_000_000, 1000)
    left = leave(np.zeros(1_000_000, dtype=np.int64), bits, 3_000_000_000)
    assert int(left[-1]) == 1_000_000 * 1000 // 3


def test_resolution_of_windowed_rates_is_one_packet() -> None:
    left = (np.arange(1, 2001) * 816_000).astype(np.float64)
    told = rate_in_windows([left], [np.full(2000, 8160.0)], 1e7, 1e7)
    assert told is not None
    assert told.packet == pytest.approx(0.0816)
    assert np.abs(told.off).max() <= told.packet
