"""The queueing model is held to queues whose truth is known: M/D/1, M/M/1, D/G/1 before a serialiser, stalls, a full
queue. Seeds are fixed; every tolerance is several times the spread over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from sojourn.statistics.distance import distances, kolmogorov, wasserstein
from sojourn.statistics.queue import (
    Passage,
    Server,
    Stalls,
    fit,
    predict,
    split_stalls,
    waits,
    waits_with_room,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEAN = 10_000.0
FLOOR = 20_000.0
FRAMES = 6_000


def entered(rng: np.random.Generator, interval: float, schedule: str, n: int = FRAMES) -> NDArray[np.float64]:
    return np.cumsum(rng.exponential(interval, n) if schedule == "poisson" else np.full(n, interval))


def services(rng: np.random.Generator, kind: str, n: int = FRAMES) -> NDArray[np.float64]:
    drawn = {"D": np.full(n, MEAN), "M": rng.exponential(MEAN, n), "G": MEAN * (0.6 + 0.4 * rng.exponential(size=n))}
    return drawn[kind]


def passage(seed: int, kind: str, interval: float, schedule: str, serialiser: float = 0.0) -> Passage:
    rng = np.random.default_rng(seed)
    at, service = entered(rng, interval, schedule), services(rng, kind)
    out = waits(at, service) + service
    if serialiser:
        behind = np.full(FRAMES, serialiser)
        out += waits(at + out, behind) + behind
    return Passage(at, out + FLOOR + rng.gamma(4, 100, FRAMES))


def trained(kind: str, serialiser: float = 0.0) -> tuple[Server, NDArray[np.float64]]:
    low = [passage(i, kind, 1e6, "regular", serialiser) for i in range(3)]
    busy = [
        [passage(10 * k + i, kind, at, "poisson", serialiser) for i in range(3)]
        for k, at in enumerate((2e4, 1.25e4), 1)
    ]
    base, stalls = split_stalls(np.concatenate([one.delay_ns for one in low]))
    return fit([low, *busy], Server(0.0, 0.0, serialiser, stalls), base, 1), base


def test_vectorised_lindley_recursion_equals_a_loop() -> None:
    rng = np.random.default_rng(3)
    at, service = entered(rng, 11_000, "poisson"), services(rng, "M")
    waiting, last = [], 0.0
    for a, s in zip(at, service, strict=True):
        waiting.append(max(0.0, last - a))
        last = max(a, last) + s
    assert waits(at, service) == pytest.approx(np.array(waiting), abs=1e-3)
    assert waits_with_room(at, service, 10**9) == pytest.approx(np.array(waiting), abs=1e-3)


@pytest.mark.parametrize(("kind", "formula"), [("D", 0.5), ("M", 1.0)])
def test_mean_waiting_is_pollaczek_and_khinchins(kind: str, formula: float) -> None:
    load = 0.6
    rng = np.random.default_rng(5)
    n = 400_000
    found = waits(entered(rng, MEAN / load, "poisson", n), services(rng, kind, n))
    assert found.mean() == pytest.approx(formula * MEAN * load / (1 - load), rel=0.03)


@pytest.mark.parametrize(("kind", "share"), [("D", 0.0), ("M", 1.0), ("G", 0.4)])
def test_the_service_is_recovered(kind: str, share: float) -> None:
    server, _ = trained(kind)
    assert server.mean_ns == pytest.approx(MEAN, rel=0.02)
    assert server.random_ns / server.mean_ns == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize("kind", ["D", "M", "G"])
def test_held_out_loads_are_predicted_as_well_as_a_repetition_would(kind: str) -> None:
    server, base = trained(kind)
    for interval, schedule in ((1.6e4, "poisson"), (1.1e4, "regular"), (3e4, "poisson")):
        real = [passage(100 + i, kind, interval, schedule) for i in range(6)]
        guesses = [predict(one.entered_ns, server, base, np.random.default_rng(i)) for i, one in enumerate(real)]
        found = distances([one.delay_ns for one in real], guesses, [np.resize(base, FRAMES)] * 6, 1)
        assert found is not None
        assert found.repetition is not None
        assert found.prediction[0].estimate < 2 * found.repetition[0].estimate + 0.01
        if schedule == "poisson":
            assert found.prediction[1].estimate < found.without[1].estimate / 3


def test_serialiser_behind_a_general_service_is_separated() -> None:
    """D/G/1: regular frames, random service, a line behind it; the line's rate is known, the service is not."""
    server, base = trained("G", serialiser=6_000.0)
    assert server.mean_ns == pytest.approx(MEAN, rel=0.02)
    real = [passage(200 + i, "G", 1.1e4, "regular", 6_000.0) for i in range(6)]
    guesses = [predict(one.entered_ns, server, base, np.random.default_rng(i)) for i, one in enumerate(real)]
    found = distances([one.delay_ns for one in real], guesses, [np.resize(base, FRAMES)] * 6, 1)
    assert found is not None
    assert found.prediction[1].estimate < found.without[1].estimate / 2


def test_growth_of_an_overloaded_queue_is_predicted() -> None:
    server, base = trained("D")
    real = passage(7, "D", 9_500.0, "regular")
    guess = predict(real.entered_ns, server, base, np.random.default_rng(1))
    assert guess[-1] == pytest.approx(real.delay_ns[-1], rel=0.02)


def test_stalls_are_found_with_their_rate_and_length() -> None:
    rng = np.random.default_rng(11)
    at = entered(rng, 1e5, "regular", 200_000)
    truth = Server(2_000.0, 0.0, 0.0, Stalls(20.0, np.array([150_000.0, 600_000.0]), np.array([0.7, 0.3])))
    delays = truth.waiting(at, rng) + FLOOR + rng.gamma(4, 200, len(at))
    kept, stalls = split_stalls(delays)
    assert stalls is not None
    assert stalls.rate_hz == pytest.approx(20.0, rel=0.25)
    assert stalls.rate_hz * stalls.mean_ns == pytest.approx(20 * 285_000, rel=0.15)
    assert kept.max() < FLOOR + 50_000


def test_few_slow_frames_are_no_stalls() -> None:
    delays = np.random.default_rng(1).gamma(4, 200, 5_000)
    delays[:5] += 1e6
    kept, stalls = split_stalls(delays)
    assert stalls is None
    assert len(kept) == 5_000


def test_loss_of_a_full_queue_is_that_of_m_m_1_k() -> None:
    rng = np.random.default_rng(2)
    n, load, room = 200_000, 0.9, 8
    found = waits_with_room(entered(rng, MEAN / load, "poisson", n), services(rng, "M", n), room)
    expected = (1 - load) * load**room / (1 - load ** (room + 1))
    assert float(np.mean(~np.isfinite(found))) == pytest.approx(expected, rel=0.06)


def test_distribution_distances_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(4)
    first, second = np.sort(rng.gamma(2, 50, 700)), np.sort(rng.gamma(2, 60, 450))
    assert kolmogorov(first, second) == pytest.approx(stats.ks_2samp(first, second).statistic)
    assert wasserstein(first, second) == pytest.approx(stats.wasserstein_distance(first, second))


def test_lost_frames_count_in_the_kolmogorov_distance() -> None:
    whole = np.arange(100.0)
    lossy = np.append(np.arange(90.0), [np.inf] * 10)
    assert kolmogorov(whole, lossy) == pytest.approx(0.1)


def test_intervals_of_distances_have_their_coverage() -> None:
    """The distance of two repetitions: its interval, bootstrapped over trials, holds the mean over many."""
    inside, truth = 0, []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        trials = [rng.normal(rng.normal(0, 0.3), 1, 200) for _ in range(12)]
        found = distances(trials, trials, trials, seed)
        assert found is not None
        assert found.repetition is not None
        truth.append(found.repetition[1])
    mean = float(np.mean([one.estimate for one in truth]))
    inside = sum(not one.excludes(mean) for one in truth)
    assert inside >= 0.8 * len(truth)
