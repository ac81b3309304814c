"""When a run may end by its interval: the rule, what it forecasts, and how often such an interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.analysis.rows import Row
from sojourn.analysis.stopping import judged
from sojourn.statistics.interval import Interval, student_quantile
from sojourn.statistics.sessions import leaning
from sojourn.statistics.stopping import FURTHER, LEAST, Look, first_narrow, is_enough, sessions_needed
from sojourn.units import width

NS_AT_MOST = width("±15us")


def looks(*halves: float, target: float = 1.0, first: int = LEAST) -> list[Look]:
    return [Look(first + number, half, target) for number, half in enumerate(halves)]


def test_run_ends_two_sessions_after_the_first_narrow_interval() -> None:
    assert not is_enough([])
    assert not is_enough(looks(0.9))
    assert not is_enough(looks(0.9, 0.9))
    assert is_enough(looks(0.9, 0.9, 0.9))
    assert is_enough(looks(0.9, 1.1, 0.9))
    assert not is_enough(looks(0.9, 0.9, 1.1))
    assert is_enough(looks(0.9, 0.9, 1.1, 1.0))
    assert first_narrow(looks(1.1, 0.9, 1.1)) == LEAST + 1


def test_interim_analyses_before_the_eighth_session_are_ignored() -> None:
    early = looks(*[0.1] * (LEAST - 2), first=2)
    assert not is_enough(early)
    assert not is_enough([*early, *looks(0.1)])
    assert is_enough([*early, *looks(0.1, 0.1, 0.1)])


@pytest.mark.parametrize(("half", "target"), [(1.0, 0.5), (1.0, 0.2), (3.0, 1.0), (1.0, 0.9)])
def test_forecast_is_the_number_of_sessions_that_reaches_the_width(half: float, target: float) -> None:
    needed = sessions_needed([Look(10, half, target)])
    assert needed is not None
    scatter = half * 10**0.5 / student_quantile(9, 0.95)
    reached = needed - FURTHER
    assert student_quantile(reached - 1, 0.95) * scatter / reached**0.5 <= target
    assert reached == 11 or student_quantile(reached - 2, 0.95) * scatter / (reached - 1) ** 0.5 > target


def test_forecast_follows_the_square_root_of_the_number_of_sessions() -> None:
    """Of a mean from 40 sessions a tenth of the width takes a hundred times as many, but for Student's quantile."""
    needed = sessions_needed([Look(40, 1.0, 0.1)])
    assert needed is not None
    assert 0.93 < needed / 4000 < 1.0
    assert sessions_needed([Look(40, 1.0, 1e-4)]) is None
    assert sessions_needed([Look(40, 1.0, 0.0)]) is None


def test_a_forecast_after_the_first_narrow_interval_counts_from_it() -> None:
    assert sessions_needed(looks(0.9)) == LEAST + FURTHER
    assert sessions_needed(looks(0.9, 0.9)) == LEAST + FURTHER
    assert sessions_needed(looks(0.9, 0.9, 1.001)) == LEAST + FURTHER + 1


def head(half: float, unit: str = "ns", sessions: int | None = 9) -> Row:
    value = Interval(200_000.0, 200_000.0 - half, 200_000.0 + half, 0.95, 18)
    return Row("bridge", "device_latency", "mean", value, unit, sessions=sessions)


def test_relative_and_absolute_widths_are_evaluated_on_the_headline() -> None:
    before = [Look(7, 1.0, 2.0), Look(8, 12_000.0, 15_000.0)]
    share, time = width("5%"), NS_AT_MOST
    assert share is not None
    assert time is not None
    told = judged(head(9_000.0), share, before)
    assert (told["sessions"], told["half"], told["target"]) == (9, 9_000.0, 10_000.0)
    assert not told["enough"]
    assert told["needed"] == 10
    assert "200 µs ± 9" in told["sentence"]
    assert judged(head(9_000.0, sessions=10), time, before)["enough"]
    assert not judged(head(16_000.0, sessions=10), time, before)["enough"]
    assert "headline is in B/s" in judged(head(9_000.0, "B/s"), time, [])["refused"]
    assert "no interval" in judged(head(9_000.0, sessions=None), share, [])["problem"]


@pytest.mark.parametrize("said", ["±5%", "+-5%", "+/-5 %", "5%"])
def test_a_width_is_read_with_any_sign(said: str) -> None:
    found = width(said)
    assert found is not None
    assert found.of(-200.0) == pytest.approx(10.0)


@pytest.mark.parametrize("said", ["", "±", "5", "±0%", "0us", "-5%", "5 kg", "±±5%", "nan%"])
def test_invalid_widths_are_refused(said: str) -> None:
    assert width(said) is None


def held(ratio: float, runs: int, *, share: bool, seed: int, skewed: bool = False) -> float:
    """In which share of runs the interval at which they end holds the mean; the last one of a run that does not end.

    The scatter of session means is so many times the half-width that is asked; they are normal, or exponential.
    """
    print(f"seed {seed}")
    mean, most = 20.0, int(8 + 10 * ratio**2)
    rng = np.random.default_rng(seed)
    off = rng.exponential(1.0, (runs, most)) - 1 if skewed else rng.normal(0.0, 1.0, (runs, most))
    n = np.arange(1, most + 1)
    means, squares, cubes = (np.cumsum(off**power, axis=1) / n for power in (1, 2, 3))
    variances = np.maximum(0.0, squares - means**2)
    errors = np.sqrt(variances / np.maximum(1, n - 1) + 1e-30)
    leans = (cubes - 3 * means * squares + 2 * means**3) / (variances + 1e-30) ** 1.5
    leans[:, 2:] *= np.sqrt(n[2:] - 1) / (n[2:] - 2)
    quantiles = np.array([np.inf, *(student_quantile(one - 1, 0.95) for one in n[1:].tolist())])
    factors = np.ones((runs, most, 2))
    for look in range(LEAST - 1, most):
        factors[:, look] = [leaning(lean, look) for lean in leans[:, look].tolist()]
    reaches = factors * (quantiles * errors)[:, :, None]
    targets = np.abs(means + mean) / (ratio * mean) if share else np.full_like(means, 1 / ratio)
    ends = [ended(h, t) for h, t in zip(reaches.max(axis=2).tolist(), targets.tolist(), strict=True)]
    every = np.arange(runs)
    down, up = reaches[every, ends].T
    return float(((means[every, ends] <= down) & (-means[every, ends] <= up)).mean())


def ended(halves: list[float], targets: list[float]) -> int:
    """At which look a run ends."""
    seen: list[Look] = []
    for number, (half, target) in enumerate(zip(halves, targets, strict=True)):
        seen.append(Look(number + 1, half, target))
        if seen[-1].is_narrow and is_enough([one for one in seen if one.is_narrow]):
            return number
    return len(halves) - 1


def test_intervals_after_sequential_stopping_cover_the_mean() -> None:
    """A short run of the proof below: 400 runs of a coverage of 93 % have fewer than 90 % once in a hundred times."""
    assert held(2.1, 400, share=False, seed=20) >= 0.90
    assert held(2.1, 400, share=False, seed=20, skewed=True) >= 0.88


@pytest.mark.proof
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("ratio", [0.8, 1.2, 1.6, 1.9, 2.1, 2.4, 3.0, 4.0])
def test_coverage_after_sequential_stopping_is_at_least_93_percent(ratio: float, share: bool) -> None:
    """Of 10,000 runs each; the standard error is a quarter of a percentage point.

    It does not separate the rule from one without further sessions, whose coverage is 92.8 to 93.1 % at a ratio of 2.1.
    """
    assert held(ratio, 10_000, share=share, seed=21) >= 0.93
