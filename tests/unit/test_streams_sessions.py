"""Streams over several beds: intervals count how beds differ, and one bed's figures stay what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.packets import Values
from sojourn.analysis.streams import At, Series, differences, over_column, over_pairs, over_trials, share_of
from sojourn.statistics.distance import distances

if TYPE_CHECKING:
    from collections.abc import Callable

    from sojourn.statistics.interval import Interval

SEED = 20001101
BEDS, TRIALS, PACKETS = 6, 4, 60
SESSION = np.repeat(np.arange(BEDS), TRIALS).astype(np.int64)
EFFECT, OWN = 300.0, 100.0


def beds(rng: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A number of each trial: its bed's effect and its own."""
    return 5000 + np.repeat(rng.normal(0, EFFECT, BEDS), TRIALS) + rng.normal(0, OWN, BEDS * TRIALS)


def values_of(rng: np.random.Generator, session: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None) -> Values:
    """Packets of trials: the bed's effect, the trial's, and their own."""
    packets = (beds(rng)[:, None] + rng.normal(0, 400, (BEDS * TRIALS, PACKETS))).ravel()
    trials = np.repeat(np.arange(BEDS * TRIALS), PACKETS).astype(np.int64)
    blocks = np.arange(BEDS * TRIALS, dtype=np.int64)
    return Values(
        "bridge", 0, 0, 0, "actual", packets, None, trials, blocks, np.zeros(len(blocks), np.int64), sessions=session
    )


def frame(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> pl.DataFrame:
    return pl.DataFrame({"value": values, "session": SESSION.astype(np.int32)})


def held(make: Callable[[np.random.Generator], Interval], truth: float, runs: int) -> float:
    rng = np.random.default_rng(SEED)
    found = [make(rng) for _ in range(runs)]
    assert all(one.low is not None for one in found)
    share = 1 - sum(one.excludes(truth) for one in found) / runs
    print(f"seed {SEED}: {share:.3f} of {runs} runs hold {truth}")
    return share


def lost(rng: np.random.Generator) -> Interval:
    """Losses whose probability each bed draws about 2 %."""
    sent = np.full(BEDS * TRIALS, 1000.0)
    share = np.repeat(rng.beta(20, 980, BEDS), TRIALS)
    return share_of(frame(sent), rng.binomial(1000, share).astype(float), sent)


def paired(rng: np.random.Generator) -> Interval:
    """Differences of two paths of one bed, whose difference each bed draws about 1300."""
    added = 1300 + np.repeat(rng.normal(0, EFFECT, BEDS), TRIALS)
    rounds = np.arange(BEDS * TRIALS, dtype=np.int64)
    direct = 5000 + rng.normal(0, OWN, BEDS * TRIALS)
    series = [
        Series(name, 0, rounds, SESSION, one)
        for name, one in (("bridge", direct + added + rng.normal(0, OWN, BEDS * TRIALS)), ("direct", direct))
    ]
    return over_pairs(differences(*series))


MAKERS = {
    "mean": (lambda rng: over_column(frame(beds(rng)), "value"), 5000.0),
    "mean delay": (lambda rng: values_of(rng, SESSION).mean(), 5000.0),
    "median delay": (lambda rng: values_of(rng, SESSION).quantile(0.5), 5000.0),
    "share": (lost, 0.02),
    "difference": (paired, 1300.0),
}


@pytest.mark.parametrize("what", MAKERS)
def test_intervals_cover_the_truth_with_differing_beds(what: str) -> None:
    make, truth = MAKERS[what]
    assert 0.92 <= held(make, truth, 300) <= 0.99


@pytest.mark.proof
@pytest.mark.parametrize("what", MAKERS)
def test_intervals_have_their_coverage_over_many_runs(what: str) -> None:
    make, truth = MAKERS[what]
    assert 0.93 <= held(make, truth, 3000) <= 0.985


def test_intervals_that_ignore_beds_undercover() -> None:
    """A bed's effect three times the scatter of trials widens the interval more than twice, as it must."""
    rng = np.random.default_rng(SEED)
    wide, narrow = [], []
    for _ in range(200):
        values = beds(rng)
        wide.append(over_trials(values, session=SESSION))
        narrow.append(over_trials(values))
    assert sum(one.excludes(5000) for one in narrow) > 0.3 * 200
    widths = [np.median([one.half_width for one in several]) for several in (wide, narrow)]
    assert widths[0] > 2 * widths[1]


def test_one_session_gives_the_previous_result() -> None:
    rng = np.random.default_rng(SEED)
    values = beds(rng)
    assert over_trials(values, session=np.zeros_like(SESSION)) == over_trials(values)
    alone, none = (values_of(np.random.default_rng(1), one) for one in (np.zeros_like(SESSION), None))
    assert alone.mean() == none.mean()
    assert alone.quantile(0.9) == none.quantile(0.9)
    assert alone.sd() == none.sd()
    assert alone.figure() is None


def test_differing_beds_are_not_modes() -> None:
    of = values_of(np.random.default_rng(1), SESSION)
    centred = of.within_sessions()
    assert np.median(centred) == pytest.approx(np.median(of.values), abs=30)
    assert centred.std() < 0.9 * of.values.std()


def test_round_split_over_two_beds_has_no_difference() -> None:
    rounds, session = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 1, 1])
    first = Series("bridge", 0, rounds, session, np.array([3.0, 5.0, 9.0, 9.0, 7.0, 7.0]))
    second = Series("direct", 0, rounds, session, np.array([1.0, 1.0, 0.0, 0.0, 2.0, 4.0]))
    assert differences(first, second) == {At(0, 0): 3.0, At(1, 2): 4.0}


def test_intervals_of_pair_distances_cover_over_beds() -> None:
    """Two repetitions of one law: the mean distance over pairs is a U-statistic, judged by a jackknife."""
    rng = np.random.default_rng(SEED)

    def several(runs: int) -> list[Interval]:
        found = []
        for _ in range(runs):
            shift = np.repeat(rng.normal(0, 40, BEDS), TRIALS)
            each = [np.sort(rng.normal(one, 100, 30)) for one in shift]
            over = distances(each, each, each, 1, SESSION)
            assert over is not None
            assert over.repetition is not None
            found.append(over.repetition[0])
        return found

    many = several(80)
    truth = float(np.mean([one.estimate for one in many]))
    assert sum(one.excludes(truth) for one in many) <= 0.12 * len(many)
