"""CUBIC (RFC 9438): a back-off by 717/1024, and after it W(t) = C (t - K)³ + Wmax with C = 0.4.

The constant is estimated in two ways. From the kernel's private state: K, which the kernel computes from the two
windows of each back-off. From the windows alone: one curve is fitted to the samples of all stretches, with C, a delay
in round trips and an offset of a fraction of a segment (the kernel counts whole ones) as free parameters, and Wmax from
the private state. Samples after the time when Reno's window would be larger are excluded: from then on CUBIC follows
Reno.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.statistics.interval import Interval, student_quantile
from sojourn.statistics.signed_rank import hodges_lehmann

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from sojourn.methods.tcp_truth.analyse.backoff import Stretch

BETA = (717, 1024)
C = 0.4
K_UNIT = 1024.0
"""The unit of the kernel's K is 1/1024 s."""

LEAST_SAMPLES = 20
POINTS = 60
"""Number of samples of each stretch in the fit, so that a long stretch does not outweigh the others."""

MOST_GROUPS = 40
"""The interval is a jackknife over at most this number of groups of stretches."""

LEAST_STRETCHES = 6
TRANSIENT_S = 0.3
"""Until this time CUBIC's window and Reno's are equal."""

WANTED = ("bic_K", "bic_origin_point", "epoch_start", "tcp_cwnd")


@dataclass(frozen=True, slots=True)
class Curve:
    """One stretch, until Reno's window would be larger."""

    seconds: NDArray[np.float64]
    window: NDArray[np.float64]
    origin: float
    """Wmax."""
    first: float
    rtt_s: float
    of_state: float | None
    """C from the private state."""
    is_cut: bool
    """Whether the stretch was truncated because Reno's window became larger."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The curve fitted to all stretches."""

    constant: float
    delay_rtt: float
    offset: float
    """In segments."""


def private_of(rows: pl.DataFrame, private: pl.DataFrame) -> pl.DataFrame:
    """Return samples of one connection with the private state that was taken with each."""
    own = private.filter((pl.col("algorithm") == "cubic") & pl.col("field").is_in(WANTED))
    if own.is_empty():
        return rows.head(0)
    wide = own.pivot(on="field", index=["flow", "cpu", "number"], values="value", aggregate_function="first")
    return rows.join(wide, on=["flow", "cpu", "number"], how="left", maintain_order="left")


def curves(rows: pl.DataFrame, several: Sequence[Stretch]) -> Iterator[Curve]:
    """Yield the curve of each stretch that has private state."""
    if not set(WANTED) <= set(rows.columns):
        return
    state = {name: rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in WANTED}
    for stretch in several:
        own = {name: values[stretch.rows] for name, values in state.items()}
        epochs = own["epoch_start"]
        for epoch in np.unique(epochs[np.isfinite(epochs) & (epochs != 0)]):
            chosen = epochs == epoch
            if chosen.sum() >= LEAST_SAMPLES:
                yield _curve(stretch, {name: values[chosen] for name, values in own.items()}, chosen)


def _curve(stretch: Stretch, own: dict[str, NDArray[np.float64]], chosen: NDArray[np.bool_]) -> Curve:
    seconds = stretch.seconds[chosen] - stretch.seconds[chosen][0]
    window = stretch.window[chosen].astype(np.float64)
    ahead = np.flatnonzero((own["tcp_cwnd"] >= window) & (seconds > TRANSIENT_S))
    end = int(ahead[0]) if len(ahead) else len(window)
    origin, k = float(own["bic_origin_point"][0]), float(own["bic_K"][0]) / K_UNIT
    of_state = (origin - float(own["tcp_cwnd"][0])) / k**3 if k > 0 else None
    rtt = float(np.median(stretch.rtt_s[chosen]))
    return Curve(seconds[:end], window[:end], origin, float(window[0]), rtt, of_state, bool(len(ahead)))


def law(seconds: NDArray[np.float64], constant: float, origin: float, first: float) -> NDArray[np.float64]:
    """Return the window at a time since the back-off."""
    k = float(np.cbrt(max(origin - first, 0.0) / constant))
    return constant * (seconds - k) ** 3 + max(origin, first)


def predicted(curve: Curve, fit: Fit, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the windows of a stretch that a fit predicts."""
    late = np.maximum(seconds - fit.delay_rtt * curve.rtt_s, 0.0)
    return law(late, fit.constant, curve.origin, curve.first) + fit.offset


def fitted(several: Sequence[Curve], start: Fit | None = None) -> Fit | None:
    """Return the least-squares fit over all stretches; None if there are too few."""
    from scipy import optimize

    told = [one for one in several if len(one.window) >= LEAST_SAMPLES // 2]
    if len(told) < LEAST_STRETCHES:
        return None
    thin = [np.unique(np.linspace(0, len(one.window) - 1, POINTS).astype(np.int64)) for one in told]

    def off(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        fit = Fit(float(np.exp(parameters[0])), float(parameters[1]), float(parameters[2]))
        pieces = (predicted(one, fit, one.seconds[at]) - one.window[at] for one, at in zip(told, thin, strict=True))
        return np.concatenate(list(pieces))

    begin = start or Fit(C, 0.0, 0.0)
    found = optimize.least_squares(
        off,
        [np.log(begin.constant), begin.delay_rtt, begin.offset],
        bounds=([np.log(0.01), -4.0, -4.0], [np.log(16.0), 4.0, 4.0]),
    )
    return Fit(float(np.exp(found.x[0])), float(found.x[1]), float(found.x[2]))


def jackknifed(several: Sequence[Curve], whole: Fit) -> list[float]:
    """Return the logarithm of C with each group of stretches left out in turn."""
    groups = min(MOST_GROUPS, len(several))
    left = ([one for place, one in enumerate(several) if place % groups != out] for out in range(groups))
    return [float(np.log(fit.constant)) for one in left if (fit := fitted(one, whole)) is not None]


def constant_of(whole: Fit, without: Sequence[float], level: float = 0.95) -> Interval:
    """Return C with its interval, which is symmetric for its logarithm."""
    n = len(without)
    centre = float(np.log(whole.constant))
    if n < LEAST_STRETCHES:
        return Interval(whole.constant, None, None, level, n)
    spread = np.array(without)
    error = float(np.sqrt((n - 1) / n * np.square(spread - spread.mean()).sum()))
    reach = student_quantile(n - 1, level) * error
    return Interval(whole.constant, float(np.exp(centre - reach)), float(np.exp(centre + reach)), level, n)


def state_constant_of(several: Sequence[float], level: float = 0.95) -> Interval:
    """Return C from the private state, estimated over stretches."""
    return hodges_lehmann(np.array(several, dtype=np.float64), level)
