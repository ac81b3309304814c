"""Do 95 % intervals hold the truth in 93 to 97 % of runs, under noise as bad as real hosts have, and are they narrow?

Runs are simulated as the schedule makes them: rounds that visit the paths in a random order and then in its mirror. One
table of noises; each is played REPETITIONS times with a fixed seed (printed with the outcome).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import special

from sojourn.statistics.line import fit
from sojourn.statistics.proportion import clopper_pearson
from sojourn.statistics.quantile import mean_by_rounds, quantile_by_rounds, sd_by_rounds
from sojourn.statistics.signed_rank import critical_rank, hodges_lehmann
from tests.unit.many_runs import hodges_lehmann_rows

REPETITIONS = 2000
ROUNDS = 12
PATHS = 4
PROBES = 40
TRUTH = 1300.0
SEED = 20031104

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]


def gauss(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.normal(0, 300, shape)


def queue(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.gamma(4, 150, shape)


def nothing(_rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.zeros(shape)


@dataclass(frozen=True)
class Noise:
    """Per probe on the host, per probe in the device (mean zero), per block, and a drift over block positions."""

    host: Draw = gauss
    device: Draw = nothing
    block: Draw = nothing
    linear_ns: float = 0.0
    walk_ns: float = 0.0


NOISES = {
    "independent Gaussian": Noise(),
    "skewed host": Noise(host=queue),
    "heavy tails, Student 2": Noise(host=lambda rng, n: 300 * rng.standard_t(2, n)),
    "heavy tails, Pareto 1.5": Noise(host=lambda rng, n: 500 * rng.pareto(1.5, n)),
    "heavy tails in the device, Pareto 3": Noise(host=queue, device=lambda rng, n: 500 * rng.pareto(3, n) - 250),
    "heavy tails in the device, Pareto 2.5": Noise(
        host=queue, device=lambda rng, n: 500 * rng.pareto(2.5, n) - 1000 / 3
    ),
    "linear drift": Noise(linear_ns=50),
    "random walk": Noise(walk_ns=100),
    "run-to-run effects": Noise(block=lambda rng, n: rng.normal(0, 200, n)),
    "heavy run-to-run effects": Noise(block=lambda rng, n: 100 * rng.standard_t(2, n)),
    "two modes in the device": Noise(host=queue, device=lambda rng, n: 5000.0 * (rng.random(n) < 0.3) - 1500),
    "two modes in the host": Noise(host=lambda rng, n: rng.gamma(4, 150, n) + 5000.0 * (rng.random(n) < 0.3)),
    "two modes of whole blocks": Noise(block=lambda rng, n: 4000.0 * (rng.random(n) < 0.3)),
    "drift, modes and tails at once": Noise(
        host=lambda rng, n: 200 * rng.standard_t(2, n),
        device=lambda rng, n: 5000.0 * (rng.random(n) < 0.3) - 1500,
        block=lambda rng, n: rng.normal(0, 200, n),
        linear_ns=20,
        walk_ns=50,
    ),
}


def mostly_proof(values: Iterable[Any], *kept: Any) -> list[Any]:
    """The values, all but those kept marked for `make proof`."""
    return [value if value in kept else pytest.param(value, marks=pytest.mark.proof) for value in values]


def pair_differences(noise: Noise, rounds: int, rng: np.random.Generator) -> Any:
    """Half the difference of mean round trips per repetition (rows) and round: direct is path 0, the device path 1."""
    place = np.argsort(np.argsort(rng.random((REPETITIONS, rounds, PATHS)), axis=2), axis=2)[:, :, :2]
    position = np.stack([place, 2 * PATHS - 1 - place], axis=3) + 2 * PATHS * np.arange(rounds)[None, :, None, None]
    shape = position.shape
    rtt = noise.host(rng, (*shape, PROBES)).mean(axis=-1) + noise.block(rng, shape) + noise.linear_ns * position
    device = (REPETITIONS, rounds, 2, PROBES)
    rtt[:, :, 1] += 2 * TRUTH + 2 * noise.device(rng, device).mean(axis=-1)
    if noise.walk_ns:
        walk = np.cumsum(rng.normal(0, noise.walk_ns, (REPETITIONS, 2 * PATHS * rounds)), axis=1)
        rtt += np.take_along_axis(walk, position.reshape(REPETITIONS, -1), axis=1).reshape(shape)
    visits = rtt.mean(axis=3)
    return (visits[:, :, 1] - visits[:, :, 0]) / 2


def student_reach(pairs: Any) -> Any:
    rounds = pairs.shape[1]
    return special.stdtrit(rounds - 1, 0.975) * pairs.std(axis=1, ddof=1) / rounds**0.5


@pytest.mark.parametrize(
    "name", mostly_proof(NOISES, "independent Gaussian", "heavy tails, Student 2", "drift, modes and tails at once")
)
def test_pair_interval_has_its_coverage_under_noise(name: str, proven: Callable[..., None]) -> None:
    pairs = pair_differences(NOISES[name], ROUNDS, np.random.default_rng(SEED))
    found = hodges_lehmann_rows(pairs)
    coverage = float(np.mean((found[:, 1] <= TRUTH) & (found[:, 2] >= TRUTH)))
    _, exact = critical_rank(ROUNDS, 0.95)
    width = float(np.median(found[:, 2] - found[:, 1]) / np.median(2 * student_reach(pairs)))
    print(f"seed {SEED}: {name}: covered {coverage:.1%} (exact level {exact:.1%}), width over Student's {width:.3f}")
    proven("coverage", "mean of pairs, 12 rounds, by kind of noise", held=coverage * REPETITIONS, of=REPETITIONS)
    assert 0.93 <= coverage <= 0.97


def test_vectorised_intervals_equal_individual_ones() -> None:
    pairs = pair_differences(NOISES["independent Gaussian"], ROUNDS, np.random.default_rng(SEED))[:5]
    for row, three in zip(pairs, hodges_lehmann_rows(pairs), strict=True):
        one = hodges_lehmann(row)
        assert (one.estimate, one.low, one.high) == pytest.approx(tuple(three))


WOLVES = ["independent Gaussian", "heavy tails, Student 2", "random walk", "run-to-run effects"]


@pytest.mark.parametrize("name", mostly_proof(WOLVES, "random walk"))
def test_false_alarm_rate_of_the_a_a_control_is_at_most_one_in_a_thousand(
    name: str, proven: Callable[..., None]
) -> None:
    """Three cells of twelve rounds pooled, at 99.9 %; the truth of a direct link against itself is zero."""
    rng = np.random.default_rng(SEED)
    alarms = 0
    for _ in range(2):
        pairs = np.hstack([pair_differences(NOISES[name], ROUNDS, rng) for _ in range(3)]) - TRUTH
        found = hodges_lehmann_rows(pairs, 0.999)
        alarms += int(np.sum((found[:, 1] > 0) | (found[:, 2] < 0)))
    print(f"seed {SEED}: {name}: {alarms} alarms in {2 * REPETITIONS}")
    proven("alarms", "A/A control at 99.9 %, by kind of noise", alarms=alarms, of=2 * REPETITIONS)
    assert alarms <= 11  # 4 expected; 12 or more come by chance once in a thousand


@pytest.mark.parametrize("rounds", mostly_proof([8, 12, 20, 38], 12))
def test_the_interval_is_nearly_the_best_possible_under_gaussian_noise(rounds: int) -> None:
    """Student's interval is the narrowest there; the exact one pays for its level (95.05 to 96.1 %) and for ranks."""
    pairs = pair_differences(NOISES["independent Gaussian"], rounds, np.random.default_rng(SEED))
    found = hodges_lehmann_rows(pairs)
    ratio = float(np.mean(found[:, 2] - found[:, 1]) / np.mean(2 * student_reach(pairs)))
    assert ratio <= 1.15


@pytest.mark.parametrize(
    "name",
    mostly_proof(
        ["heavy tails, Student 2", "heavy tails, Pareto 1.5", "heavy run-to-run effects"], "heavy tails, Student 2"
    ),
)
def test_the_interval_is_narrower_than_students_under_heavy_tails(name: str) -> None:
    pairs = pair_differences(NOISES[name], ROUNDS, np.random.default_rng(SEED))
    found = hodges_lehmann_rows(pairs)
    assert np.mean(found[:, 2] - found[:, 1]) < 0.95 * np.mean(2 * student_reach(pairs))


@pytest.mark.proof
def test_mean_interval_undercovers_for_a_device_with_infinite_variance(proven: Callable[..., None]) -> None:
    """Pareto tails of shape 2 in the device: pairs are skewed, and more of them make it worse. Known, and said."""
    noise = Noise(host=queue, device=lambda rng, n: 500 * rng.pareto(2, n) - 500)
    found = hodges_lehmann_rows(pair_differences(noise, 38, np.random.default_rng(SEED)))
    coverage = float(np.mean((found[:, 1] <= TRUTH) & (found[:, 2] >= TRUTH)))
    proven(
        "coverage", "mean of pairs, a device of infinite variance: a known limit", held=coverage * REPETITIONS,
        of=REPETITIONS,
    )  # fmt: skip
    assert 0.75 < coverage < 0.93


@pytest.mark.parametrize(
    "shape", mostly_proof(["Gaussian", "Student 2", "slopes that differ between rounds"], "Student 2")
)
def test_intervals_of_slope_and_intercept_have_their_coverage(shape: str, proven: Callable[..., None]) -> None:
    rng = np.random.default_rng(SEED)
    sizes = np.array([64.0, 274, 530, 1042, 1518])
    slope, intercept, hits = 0.4, 1300.0, np.zeros(2)
    repetitions = 1000
    for _ in range(repetitions):
        noise = rng.standard_t(2, (ROUNDS, 5)) if shape == "Student 2" else rng.normal(0, 1, (ROUNDS, 5))
        slopes = slope + (rng.normal(0, 0.05, (ROUNDS, 1)) if shape.startswith("slopes") else 0.0)
        line = fit(sizes, intercept + rng.normal(0, 60, (ROUNDS, 1)) + slopes * sizes + 40 * noise)
        hits += [not line.slope.excludes(slope), not line.intercept.excludes(intercept)]
    coverage = hits / repetitions
    print(f"seed {SEED}: {shape}: slope {coverage[0]:.1%}, intercept {coverage[1]:.1%}")
    for name, number in zip(("slope", "intercept"), hits, strict=True):
        proven("coverage", f"{name} over frame size", held=number, of=repetitions)
    assert (coverage >= 0.93).all()
    assert (coverage <= 0.975).all()  # the exact level for twelve rounds is 95.75 %


@pytest.mark.parametrize("block_sd", mostly_proof([0.0, 150.0], 150.0))
@pytest.mark.parametrize("statistic", mostly_proof(["p50", "p90", "p99", "mean", "sd"], "p90", "mean"))
def test_path_figures_cover_with_correlated_blocks(
    statistic: str, block_sd: float, proven: Callable[..., None]
) -> None:
    rng = np.random.default_rng(SEED)
    rounds, per_block, repetitions = 16, 40, 1000

    def sample(blocks: int) -> Any:
        return np.repeat(rng.normal(0, block_sd, blocks), per_block) + queue(rng, (blocks * per_block,))

    everything = sample(60_000)
    quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    truth = {"mean": everything.mean(), "sd": everything.std()}.get(statistic)
    truth = np.quantile(everything, quantiles[statistic]) if truth is None else truth
    of_round = np.repeat(np.arange(rounds), 2 * per_block)
    hits = 0
    for _ in range(repetitions):
        values = sample(2 * rounds)
        if statistic in quantiles:
            found = quantile_by_rounds(values, of_round, quantiles[statistic])
        else:
            found = (mean_by_rounds if statistic == "mean" else sd_by_rounds)(values, of_round)
        hits += not found.excludes(float(truth))
    coverage = hits / repetitions
    print(f"seed {SEED}: {statistic}, block sd {block_sd}: {coverage:.1%}")
    proven("coverage", "quantiles, mean and deviation of a path", held=hits, of=repetitions)
    assert 0.925 <= coverage <= 0.975


@pytest.mark.parametrize("truth", [0.001, 0.01, 0.2])
def test_coverage_of_clopper_pearson_is_never_below_its_level(truth: float) -> None:
    trials = 1000
    chances = np.arange(trials + 1)
    covers = np.array([not clopper_pearson(int(k), trials).excludes(truth) for k in chances])
    likelihood = np.exp(
        special.gammaln(trials + 1) - special.gammaln(chances + 1) - special.gammaln(trials - chances + 1)
        + chances * np.log(truth) + (trials - chances) * np.log1p(-truth)
    )  # fmt: skip
    coverage = float(likelihood[covers].sum())
    assert 0.95 <= coverage <= 0.99
