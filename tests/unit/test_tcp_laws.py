"""The laws of congestion control are found in traces of known ones, and so is what breaks them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sojourn.methods.tcp_truth.analyse import backoff, cubic, reno

RTT_NS = 20_000_000
LIMITED = backoff.CWND_LIMITED


def reno_trace(*, back_offs: int, factor: float, share: float, seed: int) -> pl.DataFrame:
    """Samples of a sender, one a round trip's part: `share` of what is delivered counts towards growth."""
    rng = np.random.default_rng(seed)
    rows, now, delivered, window, counted, owed = [], 1_000_000_000, 0, 40, 0, 0.0

    def row(state: int, prior: int, threshold: int) -> None:
        rows.append((now, "in", state, window, threshold, prior, counted, delivered, LIMITED, RTT_NS / 1e3))

    threshold = 20
    for _ in range(back_offs):
        for _ in range(int(rng.integers(80, 200))):
            acked = int(rng.integers(1, 4))
            now += round(RTT_NS * acked / window)
            delivered += acked
            owed += acked * share
            counted += int(owed)
            owed -= int(owed)
            if counted >= window:
                counted -= window
                window += 1
            row(0, 0, threshold)
        prior, threshold = window, max(int(window * factor), 2)
        now += RTT_NS
        row(3, prior, threshold)
        window, counted = threshold, 0
        now += RTT_NS
        row(0, prior, threshold)
    names = ("time_ns", "point", *("ca_state", "snd_cwnd", "snd_ssthresh", "prior_cwnd", "snd_cwnd_cnt"))
    return pl.DataFrame(rows, schema=[*names, "delivered", "flags", "srtt_us"], orient="row")


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_slope_is_recovered(share: float) -> None:
    rows = reno_trace(back_offs=30, factor=0.5, share=share, seed=1)
    several = list(backoff.stretches(rows))
    found = reno.mean_slope(reno.slopes(several))
    assert found.low is not None
    assert found.high is not None
    assert abs(found.estimate - share) < 0.03
    assert found.high - found.low < 0.05
    grown = [reno.growth(one) for one in several]
    exact = sum(one.exact for one in grown) / sum(one.steps for one in grown)
    assert exact == 1.0 if share == 1.0 else exact < 0.6


@pytest.mark.parametrize(("fraction", "lawful"), [(reno.HALF, True), (cubic.BETA, True), ((6, 10), False)])
def test_back_off_factor_is_known_to_one_segment(fraction: tuple[int, int], lawful: bool) -> None:
    factor = fraction[0] / fraction[1]
    offs = backoff.back_offs(reno_trace(back_offs=40, factor=factor, share=1.0, seed=2))
    assert len(offs) == 40
    known = reno.HALF if factor == 0.5 else cubic.BETA
    assert all(backoff.lawful(one, *known) for one in offs) is lawful
    between = backoff.bounds(offs)
    assert between is not None
    assert between[0] <= factor < between[1]
    found = backoff.factor(offs)
    assert found.low is not None
    assert found.high is not None
    assert abs(found.estimate - factor) < 0.02


def made_up_curves(constant: float, count: int, seed: int) -> list[cubic.Curve]:
    """Windows of whole segments along the law, a part of a segment ahead of it and noisy."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        origin = float(rng.integers(60, 200))
        first = np.floor(origin * 0.7)
        seconds = np.sort(rng.uniform(0, rng.uniform(1, 5), 300))
        window = np.floor(cubic.law(seconds, constant, origin, first) + 1 + rng.normal(0, 0.2, 300))
        found.append(cubic.Curve(seconds, window, origin, first, 0.1, None, is_cut=False))
    return found


@pytest.mark.parametrize("constant", [0.4, 0.2, 1.0])
def test_a_curve_is_recovered(constant: float) -> None:
    several = made_up_curves(constant, 20, seed=3)
    fit = cubic.fitted(several)
    assert fit is not None
    found = cubic.constant_of(fit, cubic.jackknifed(several, fit))
    assert found.low is not None
    assert found.high is not None
    assert found.low * 0.97 < constant < found.high * 1.03
    assert found.high / found.low < 1.3


def test_too_few_intervals_give_no_cubic_fit() -> None:
    assert cubic.fitted(made_up_curves(0.4, 3, seed=4)) is None
