"""Combine the sessions of a measurement: the mean, its repeatability, and the expected mean of another run.

A session sets up bed and instruments anew, so sessions differ by more than the scatter within them. Each contributes
one value, the arithmetic mean of its pair differences. The model is that of ISO 5725-2: session effects are independent
draws from one population, and pair differences have the same variance within all sessions, which is pooled. The module
does not choose which sessions count, and it ignores errors common to all sessions: `budget` combines those with its
results. It hides the fit of the between-session variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import special

from sojourn.statistics.interval import Interval, student_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Estimator = Literal["student-t", "reml-hartung-knapp"]

LEAST_SESSIONS = 3
"""With fewer sessions there is no interval that depends on the scatter between sessions."""

MOST_OF_T = 2.0
"""The most that an interval may reach, over Student's. A larger limit only widens it: no coverage that is simulated
below gains half a percentage point; at 1.5 times, 92.2 % of intervals contain the mean of six exponential effects."""

MOST_STEPS = 100
TOLERANCE = 1e-10
"""Fisher scoring ends when a step changes tau² by less than this share of the variance of the session values."""

ROUNDING = 16 * float(np.finfo(np.float64).eps)
"""A width below this share of the interval's centre is rounding of numbers, not scatter."""


@dataclass(frozen=True, slots=True)
class AcrossSessions:
    """The mean over sessions and the parts of its uncertainty, all in the unit of the values.

    `mean`, `between` and `next_run` count sessions (`n`), `repeatability` counts pairs. `standard_error` is that of
    `mean` and has `degrees` degrees of freedom (sessions minus one); it is None where `mean` has no interval.
    """

    estimator: Estimator
    mean: Interval
    standard_error: float | None
    degrees: int
    lean: float
    """Skewness of the sessions over the square root of their number; it makes the interval of `mean` asymmetric."""

    @property
    def t(self) -> float | None:
        """The mean over its standard error, divided by the factor by which its interval is extended towards zero."""
        if self.standard_error is None:
            return None
        down, up = leaning(self.lean, self.degrees)
        return self.mean.estimate / self.standard_error / (down if self.mean.estimate > 0 else up)

    repeatability: Interval
    """The interval around the same mean if only the scatter within sessions existed."""
    between: Interval
    """The standard deviation of session effects, tau."""
    next_run: Interval
    """The mean of another run under the same conditions, with its prediction interval."""


def across_sessions(
    values: NDArray[np.float64],
    standard_errors: NDArray[np.float64],
    pairs: NDArray[np.int64],
    level: float = 0.95,
    next_sessions: int | None = None,
) -> AcrossSessions:
    """Return the mean over k sessions with its interval, and its repeatability, between-session and next-run parts.

    `values`, `standard_errors` (of each value, from the scatter within its session) and `pairs` have one entry for each
    session. `next_sessions` is the number of sessions of the other run, k where it is None.

    Sessions of equal size: the plain average and Student's interval with k - 1 degrees of freedom ("student-t").
    Sessions of unequal size (interrupted ones): weights 1/(tau² + v_i) with tau² by REML (Viechtbauer, 2005, "Bias and
    efficiency of meta-analytic variance estimators in the random-effects model") and the interval of Hartung and Knapp
    (2001, "On tests of the overall treatment effect in meta-analysis with normally distributed responses") with the
    factor q at least 1 (Röver, Knapp and Friede, 2015, "Hartung-Knapp-Sidik-Jonkman approach and its modification for
    random-effects meta-analysis with few studies"): "reml-hartung-knapp". v_i is the pooled variance of a pair over the
    session's pairs: a short session's own standard error is too poorly known to be a weight.

    For skewed effects, Student's interval is too short on the side of their long tail: few sessions seldom contain the
    rare large effects, and then both mean and scatter are too small. So on that side the interval of the mean ends
    where that of Hall's transformed t does (Hall, 1992, "On the removal of skewness by transformation", the cubic one),
    with the adjusted coefficient of skewness, where that lies further out; at twice the distance at most.

    The interval of another run reaches t·s·sqrt(1/k + 1/k') to each side, s the standard error of the mean times
    sqrt(k) (Hahn and Meeker, 1991, "Statistical Intervals", on the mean of a future sample), and further on the side on
    which that of the mean does. Its sessions are assumed to have these sizes and the same analysis.

    `low` and `high` are None for `mean`, `between` and `next_run` below three sessions; for `repeatability` below two
    degrees of freedom; for any interval of zero width, which does not prove that there is no scatter (values coarser
    than their scatter are equal); and for `between` where the sessions differ less than the scatter within them allows
    at this level, so that no tau fits.

    Coverage of the mean in simulated runs of 6 to 20 sessions of equal size (Student's interval alone): normal effects,
    95 to 97 % (95 %); exponential ones, 93 to 96 % (88 to 94 %); two equally frequent modes, 96 to 100 % (92 to 97 %);
    a mode of one session in five, 75 % with six sessions, as some runs never show it, and 98 % with twenty. The
    interval of `between` is not valid for skewed effects, however many sessions there are. Where sessions of unequal
    size have no effects of their own, Hartung and Knapp's interval is too wide: it contained the mean in 98 to 99.7 %
    of runs.

    ValueError for arrays of different lengths, no session, values that are not finite, a negative standard error, a
    session of fewer than two pairs, or no next session.
    """
    y, errors, n = _checked(values, standard_errors, pairs)
    k = len(y)
    others = k if next_sessions is None else next_sessions
    if others < 1:
        raise ValueError("another run has at least one session")
    variance, degrees = _pooled(errors[None, :], n)
    fit = _fit(y[None, :], variance, n)
    mean, error = float(fit.mean[0]), float(fit.error[0])
    lean = float(lean_of(y[None, :], fit.mean, fit.weights)[0])
    within = float(np.sqrt((fit.weights[0] ** 2 * variance[0] / n).sum()))
    t = student_quantile(k - 1, level) if k >= LEAST_SESSIONS else None
    repeats = student_quantile(degrees, level) if degrees >= 2 else None
    reaches = [0.0 if t is None else factor * t for factor in leaning(lean, k - 1)]
    interval = _around(mean, reaches, error, level, k)
    low, high = _tau_bounds(y, variance[0] / n, interval)
    return AcrossSessions(
        estimator=fit.estimator,
        mean=interval,
        standard_error=None if interval.low is None else error,
        degrees=k - 1,
        lean=lean,
        repeatability=_around(mean, (repeats or 0.0,) * 2, within, level, int(n.sum())),
        between=Interval(float(fit.between[0]) ** 0.5, low, high, level, k),
        next_run=_around(mean, [math.hypot(one, (t or 0.0) * (k / others) ** 0.5) for one in reaches], error, level, k),
    )


def lean_of(
    values: NDArray[np.float64], means: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the adjusted skewness of each row's sessions over the square root of their number; 0 below three sessions.

    Residuals are multiplied by the square roots of their weights, which gives them equal variance.
    """
    k = values.shape[1]
    residuals = np.sqrt(weights) * (values - means[:, None])
    residuals -= residuals.mean(axis=1, keepdims=True)
    largest = np.abs(residuals).max(axis=1, keepdims=True)
    residuals = np.divide(residuals, largest, out=np.zeros_like(residuals), where=largest > 0)
    squares = np.square(residuals).mean(axis=1)
    if k < LEAST_SESSIONS:
        return np.zeros(len(values))
    cubes = (residuals**3).mean(axis=1)
    skewness = np.divide(cubes, squares**1.5, out=np.zeros(len(values)), where=squares > 0)
    return np.asarray(skewness * (k * (k - 1)) ** 0.5 / (k - 2) / k**0.5, dtype=np.float64)


def leaning(lean: float, degrees: int) -> tuple[float, float]:
    """Return the factors by which the interval of a mean exceeds Student's, downwards and upwards: 1 to MOST_OF_T.

    They are computed at 95 % and used for every level: further out the transformation is not valid.
    """
    if abs(lean) < ROUNDING:
        return 1.0, 1.0
    t = student_quantile(degrees, 0.95)
    down, up = (side * 3 / lean * (math.cbrt(1 + lean * (side * t - lean / 6)) - 1) for side in (1, -1))
    return min(max(1.0, down / t), MOST_OF_T), min(max(1.0, up / t), MOST_OF_T)


def reml_variances(values: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the between-session variance tau² of every row, by restricted maximum likelihood; at least 0.

    `variances` are the known variances of the values within sessions, of the same shape; in a row they are positive, or
    all 0. Fisher scoring starts from the estimate of equal weights (Viechtbauer, 2005); a row that has not converged
    after MOST_STEPS is searched between bounds.
    """
    spread = np.var(values, axis=1, ddof=1) + variances.mean(axis=1)
    unit = np.where(spread > 0, spread, 1.0)
    y = (values - values.mean(axis=1, keepdims=True)) / np.sqrt(unit)[:, None]
    v = variances / unit[:, None]
    found = np.maximum(0.0, np.var(y, axis=1, ddof=1) - v.mean(axis=1))
    open_rows = np.flatnonzero(spread > 0)
    for _ in range(MOST_STEPS):
        if not len(open_rows):
            break
        before = found[open_rows]
        found[open_rows] = np.maximum(0.0, before + _scoring_step(y[open_rows], v[open_rows], before))
        open_rows = open_rows[~(np.abs(found[open_rows] - before) <= TOLERANCE)]  # rows with NaN stay open
    for row in open_rows:
        found[row] = _most_likely(y[row], v[row])
    return np.asarray(found * unit, dtype=np.float64)


def q_profile(
    values: NDArray[np.float64], variances: NDArray[np.float64], level: float = 0.95
) -> tuple[float, float] | None:
    """Return the interval of the between-session variance tau² (not of its square root); None where it is empty.

    It contains every tau² for which the weighted sum of squares Q(tau²) lies between the quantiles of chi-square with
    k-1 degrees of freedom (Viechtbauer, 2007, "Confidence intervals for the amount of heterogeneity in meta-analysis").
    For equal variances this is the chi-square interval of a variance, minus the variance within. It is empty where Q(0)
    is below both. Coverage is not at this level if effects are not normal, however many sessions there are.
    """
    y = values - values[0]
    y -= y.mean()
    squares = float((y**2).sum())
    if not squares:
        return None
    upper, lower = (float(special.chdtri(len(y) - 1, (1 - side * level) / 2)) for side in (1, -1))
    if np.ptp(variances) <= TOLERANCE * float(variances.max()):
        low, high = (squares / quantile - float(variances.mean()) for quantile in (upper, lower))
        return (max(0.0, low), high) if high > 0 else None
    from scipy import optimize

    above_upper, above_lower = (_q_above(y, variances, quantile) for quantile in (upper, lower))
    if above_lower(0.0) <= 0:
        return None
    low = optimize.brentq(above_upper, 0.0, squares / upper, xtol=squares * TOLERANCE) if above_upper(0.0) > 0 else 0.0
    return low, optimize.brentq(above_lower, 0.0, squares / lower, xtol=squares * TOLERANCE)


@dataclass(frozen=True, slots=True)
class _Fit:
    """One entry per row; weights sum to 1 over a row's sessions; `between` is tau²."""

    estimator: Estimator
    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    weights: NDArray[np.float64]
    between: NDArray[np.float64]


def _checked(
    values: NDArray[np.float64], standard_errors: NDArray[np.float64], pairs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    y = np.asarray(values, dtype=np.float64)
    errors = np.asarray(standard_errors, dtype=np.float64)
    n = np.asarray(pairs)
    if y.ndim != 1 or not len(y) or not y.shape == errors.shape == n.shape:
        raise ValueError("values, standard errors and pairs have one entry for each session, of at least one session")
    if not (np.isfinite(y).all() and np.isfinite(errors).all()):
        raise ValueError("values and standard errors of sessions are finite")
    if (errors < 0).any() or (n < 2).any() or (n % 1 != 0).any():
        raise ValueError("a session has two pairs or more, and a standard error that is not negative")
    return y, errors, n.astype(np.int64)


def _pooled(errors: NDArray[np.float64], pairs: NDArray[np.int64]) -> tuple[NDArray[np.float64], int]:
    """Return the variance of one pair within sessions, a column with one entry per row, and its degrees of freedom."""
    degrees = int((pairs - 1).sum())
    return (errors**2 * (pairs * (pairs - 1))).sum(axis=1, keepdims=True) / degrees, degrees


def _fit(values: NDArray[np.float64], variance: NDArray[np.float64], pairs: NDArray[np.int64]) -> _Fit:
    """Fit every row, relative to its first value, so that equal values have no scatter from rounding."""
    first = values[:, :1]
    equal = bool((pairs == pairs[0]).all())
    fit = (_plain if equal else _hartung_knapp)(values - first, variance / pairs)
    return replace(fit, mean=fit.mean + first[:, 0])


def _plain(y: NDArray[np.float64], within: NDArray[np.float64]) -> _Fit:
    m, k = y.shape
    scatter = np.var(y, axis=1, ddof=1) if k > 1 else np.full(m, np.nan)
    between = np.maximum(0.0, scatter - within.mean(axis=1))
    return _Fit("student-t", y.mean(axis=1), np.sqrt(scatter / k), np.full((m, k), 1 / k), between)


def _hartung_knapp(y: NDArray[np.float64], within: NDArray[np.float64]) -> _Fit:
    between = reml_variances(y, within)
    total = between[:, None] + within
    scatters = total > 0
    weights = 1 / np.where(scatters, total, 1.0)
    whole = weights.sum(axis=1)
    mean = (weights * y).sum(axis=1) / whole
    q = (weights * (y - mean[:, None]) ** 2).sum(axis=1) / (y.shape[1] - 1)
    error = np.sqrt(np.maximum(1.0, q) / whole) * scatters.all(axis=1)
    return _Fit("reml-hartung-knapp", mean, error, weights / whole[:, None], between)


def _scoring_step(y: NDArray[np.float64], v: NDArray[np.float64], tau2: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return score over expected information of the restricted likelihood; not finite if weights differ too much."""
    with np.errstate(all="ignore"):
        w = 1 / (tau2[:, None] + v)
        share = w / w.sum(axis=1, keepdims=True)
        deviation = y - (share * y).sum(axis=1, keepdims=True)
        score = (np.square(w * deviation) - w * (1 - share)).sum(axis=1)
        information = (w**2 * (1 - 2 * share)).sum(axis=1) + (w * share).sum(axis=1) ** 2
        return np.asarray(score / information, dtype=np.float64)


def _most_likely(y: NDArray[np.float64], v: NDArray[np.float64]) -> float:
    """Return the tau² of the greatest restricted likelihood: by a grid up to where it must fall, then around
    its best."""
    from scipy import optimize

    def loss(tau2: float) -> float:
        w = 1 / (tau2 + v)
        deviation = y - np.average(y, weights=w)
        return float(-np.log(w).sum() + np.log(w.sum()) + (w * deviation**2).sum())

    grid = np.concatenate([[0.0] if v.all() else [], np.geomspace(1e-10, len(y) * np.ptp(y) ** 2, 400)])
    losses = [loss(float(tau2)) for tau2 in grid]
    best = int(np.argmin(losses))
    between = (float(grid[max(0, best - 1)]), float(grid[min(best + 1, len(grid) - 1)]))
    found = optimize.minimize_scalar(loss, bounds=between, method="bounded", options={"xatol": TOLERANCE * between[1]})
    return float(found.x) if found.fun < losses[best] else float(grid[best])


def _q_above(values: NDArray[np.float64], variances: NDArray[np.float64], quantile: float) -> Callable[[float], float]:
    """Return the excess of the weighted sum of squares over a quantile, as a function of tau²."""

    def above(tau2: float) -> float:
        w = 1 / (tau2 + variances)
        return float((w * (values - np.average(values, weights=w)) ** 2).sum()) - quantile

    return above


def _tau_bounds(
    values: NDArray[np.float64], variances: NDArray[np.float64], mean: Interval
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of tau, at the level of that of the mean; none where the mean has none."""
    found = None if mean.low is None else q_profile(values, variances, mean.level)
    return (None, None) if found is None else (found[0] ** 0.5, found[1] ** 0.5)


def _around(centre: float, reaches: Sequence[float], error: float, level: float, n: int) -> Interval:
    """Return the interval of this many standard errors to each side, or none if its width is within rounding."""
    down, up = (one * error for one in reaches)
    if not min(down, up) > ROUNDING * abs(centre):
        return Interval(centre, None, None, level, n)
    return Interval(centre, centre - down, centre + up, level, n)
