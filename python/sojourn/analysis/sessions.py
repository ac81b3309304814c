"""Pair differences of several sessions as one figure: over rebuilt beds, and within one.

A session's value is the arithmetic mean of its pair differences. Where a run has a single bed, the figure is the mean
over its pairs with Student's interval: that is repeatability, and does not cover another bed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sojourn.statistics.discovery import signed_rank_p
from sojourn.statistics.interval import Interval, student_t
from sojourn.statistics.sessions import AcrossSessions, across_sessions
from sojourn.statistics.signed_rank import hodges_lehmann, least_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_PAIRS = 2
"""A session cut to fewer pairs has no scatter of its own, and is left out."""

NO_SESSION = -1
"""The session of rounds that began on one bed and ended on another."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean of pair differences; its parts over beds are None where the run has one bed.

    `mean`, `pseudomedian` (Hodges and Lehmann's) and `within` count pairs.
    """

    mean: Interval
    pseudomedian: Interval
    """Over beds centred on their common mean: differences between beds do not count as a tail."""
    within: Interval
    """The interval if only the scatter within beds existed: repeatability."""
    between: Interval | None
    """The standard deviation between rebuilt beds."""
    next_run: Interval | None
    """The mean of another run of as many beds, with its prediction interval."""
    sessions: int | None
    p: float | None
    """The p of a mean of zero: by Student's t over sessions, or Wilcoxon's over the pairs of one bed."""


def figure_of(differences: NDArray[np.float64], session: NDArray[np.int64], level: float = 0.95) -> Figure:
    """Return the figure of differences (NaN: none) by their sessions; a single session is one bed.

    Besides sessions of at least two pairs, a session of a single pair is left out, of the mean and of the counts.
    """
    used = ~np.isnan(differences) & (session != NO_SESSION)
    d, of = differences[used], session[used]
    if len(np.unique(of)) < 2:
        mean = student_t(d, level)
        if len(d) < least_pairs(level):  # so few do not show the shape of their scatter
            mean = Interval(mean.estimate, None, None, level, len(d))
        return Figure(mean, hodges_lehmann(d, level), mean, None, None, None, signed_rank_p(d))
    counted = np.isin(of, [one for one in np.unique(of) if (of == one).sum() >= LEAST_PAIRS])
    found = across(d[counted], of[counted], level) if counted.any() else None
    if found is None:
        bare = Interval(float(d.mean()), None, None, level, len(d))
        return Figure(bare, hodges_lehmann(d, level), bare, None, None, len(np.unique(of)), None)
    d, of = d[counted], of[counted]
    centred = d - by_session(d, of)[np.unique(of, return_inverse=True)[1]] + d.mean()
    return Figure(
        replace(found.mean, n=len(d)),
        hodges_lehmann(centred, level),
        replace(found.repeatability, n=len(d)),
        found.between,
        found.next_run,
        found.mean.n,
        _p(found),
    )


def across(d: NDArray[np.float64], session: NDArray[np.int64], level: float = 0.95) -> AcrossSessions | None:
    """Combine differences without gaps over sessions; None where fewer than two sessions have enough pairs."""
    several = [d[session == one] for one in np.unique(session) if one != NO_SESSION]
    several = [one for one in several if len(one) >= LEAST_PAIRS]
    if len(several) < 2:
        return None
    means = np.array([one.mean() for one in several])
    errors = np.array([one.std(ddof=1) / len(one) ** 0.5 for one in several])
    return across_sessions(means, errors, np.array([len(one) for one in several]), level)


def beds_in(session: NDArray[np.int64] | None) -> int | None:
    """Return the number of sessions; None for one, or where the run has one bed."""
    if session is None:
        return None
    found = {one for one in np.unique(session).tolist() if one != NO_SESSION}
    return len(found) if len(found) > 1 else None


def beds_counted(session: NDArray[np.int64]) -> int | None:
    """Return the number of sessions that `figure_of` uses: those of at least two pairs, if there are two; None
    for one."""
    names, counts = np.unique(session[session != NO_SESSION], return_counts=True)
    if len(names) < 2:
        return None
    whole = int((counts >= LEAST_PAIRS).sum())
    return whole if whole > 1 else len(names)


def middle(values: NDArray[np.float64], session: NDArray[np.int64], level: float = 0.95) -> Interval:
    """Return the pseudomedian (Hodges and Lehmann's) of values of one session; of several, their mean over sessions."""
    return hodges_lehmann(values, level) if beds_in(session) is None else figure_of(values, session, level).mean


def beside(quantity: str, figure: Figure, unit: str) -> list[tuple[str, str, Interval, str]]:
    """Return the parts of a mean over several beds: within one of them, another run's, and between beds."""
    if figure.between is None or figure.next_run is None:
        return []
    return [
        (quantity, "within_bed", figure.within, unit),
        (quantity, "next_run", figure.next_run, unit),
        (quantity, "between_beds", figure.between, unit),
    ]


def beside_latency(figure: Figure) -> list[tuple[str, str, Interval, str]]:
    """Return the parts of a device's latency: its pseudomedian too."""
    found = [("device_latency", "hodges_lehmann", figure.pseudomedian, "ns")]
    if figure.between is not None and figure.next_run is not None:
        found += [
            ("device_latency", "within_bed", figure.within, "ns"),
            ("device_latency", "next_run", figure.next_run, "ns"),
            ("between_beds", "sd", figure.between, "ns"),
        ]
    return found


def by_session(values: NDArray[np.float64], session: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return rows without gaps as the means of their sessions, in the order of the sessions' numbers."""
    return np.array([values[session == one].mean(axis=0) for one in np.unique(session)], dtype=np.float64)


def _p(found: AcrossSessions) -> float | None:
    return None if found.t is None else float(2 * special.stdtr(found.degrees, -abs(found.t)))
