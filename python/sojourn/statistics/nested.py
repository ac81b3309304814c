"""The standard deviations between and within groups of values: for runs on several boots, how far the boots differ.

The model is one-way and nested: a value is the mean, its group's effect, and its own; effects are independent draws.
The estimate is that of the analysis of variance, for groups of any sizes (Searle, Casella and McCulloch, "Variance
Components", 3.6). The interval is Williams and Tukey's, exact for equal groups in its parts and close otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

LEAST_GROUPS = 6
"""With fewer groups no standard deviation is reported: five groups determine it only within a factor of three."""

LEAST_WITHIN = 6
"""The least degrees of freedom within groups for estimating the scatter from the values."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """The scatter of values within a group in excess of their standard errors: a standard deviation, in their unit.

    `degrees` are those of the scatter that the errors are subtracted from.
    """

    sd: float
    degrees: int


@dataclass(frozen=True, slots=True)
class Component:
    """The scatter between groups, and within a group: standard deviations in the unit of the values."""

    between: float
    low: float
    high: float
    within: float
    within_degrees: float
    """Infinite where `within` comes from the values' own standard errors."""
    groups: int
    values: int

    @property
    def degrees(self) -> int:
        """The degrees of freedom of `between`: the number of groups minus one."""
        return self.groups - 1

    @property
    def is_replicated(self) -> bool:
        """Whether the scatter within groups was observed, not taken from the values' standard errors."""
        return bool(np.isfinite(self.within_degrees))


def within_groups(
    values: NDArray[np.float64], groups: Sequence[Hashable], errors: NDArray[np.float64]
) -> Scatter | None:
    """Return the pooled scatter within groups minus the values' own errors; None where its degrees of freedom are too
    few.

    `errors` are their standard errors (NaN where unknown).
    """
    found = pooled(members_of(values, groups))
    if found is None:
        return None
    known = errors[np.isfinite(errors)]
    own = float(np.mean(known**2)) if len(known) else 0.0
    return Scatter(max(0.0, found[0] - own) ** 0.5, found[1])


def between_groups(
    values: NDArray[np.float64],
    groups: Sequence[Hashable],
    errors: NDArray[np.float64],
    level: float = 0.95,
) -> Component | None:
    """Return the component between groups; None for fewer than six groups, or where the scatter within them is unknown.

    `errors` are the values' own standard errors (NaN where unknown). They replace the scatter within groups where too
    few groups have several values.
    """
    members = members_of(values, groups)
    if len(members) < LEAST_GROUPS:
        return None
    sizes = np.array([len(one) for one in members], dtype=np.float64)
    n, degrees = len(values), len(members) - 1
    found = scatter_within(members, errors)
    if found is None:
        return None
    within, within_degrees = found
    size = (n - float(np.sum(sizes**2)) / n) / degrees
    means = np.array([one.mean() for one in members])
    squares = float(np.sum(sizes * (means - np.mean(values)) ** 2))
    between = max(0.0, (squares / degrees - within) / size)
    low, high = williams_tukey(squares / size, (degrees, within_degrees), within / size, level)
    return Component(between**0.5, low, high, within**0.5, within_degrees, len(members), n)


def members_of(values: NDArray[np.float64], groups: Sequence[Hashable]) -> list[NDArray[np.float64]]:
    """Return the values of each group, in the order of each group's first value."""
    return [values[[group == name for group in groups]] for name in dict.fromkeys(groups)]


def pooled(members: list[NDArray[np.float64]]) -> tuple[float, int] | None:
    """Return the variance within groups and its degrees of freedom; None where these are too few."""
    degrees = sum(len(one) - 1 for one in members)
    if degrees < LEAST_WITHIN:
        return None
    return sum(float(np.sum((one - one.mean()) ** 2)) for one in members) / degrees, degrees


def scatter_within(members: list[NDArray[np.float64]], errors: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the variance within groups and its degrees of freedom: pooled, or the mean of the values' own."""
    found = pooled(members)
    if found is not None:
        return found
    known = errors[np.isfinite(errors)]
    return (float(np.mean(known**2)), float("inf")) if len(known) else None


def williams_tukey(squares: float, degrees: tuple[int, float], within: float, level: float) -> tuple[float, float]:
    """Return both ends of the standard deviation between groups; sums of squares are those of group means."""
    if squares <= 0:
        return 0.0, 0.0
    ratio = within * degrees[0] / squares
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):  # the upper tail gives the lower end
        chi2 = float(special.chdtri(degrees[0], tail))
        f = chi2 / degrees[0] if np.isinf(degrees[1]) else float(special.fdtri(degrees[0], degrees[1], 1 - tail))
        ends.append(max(0.0, squares * (1 - f * ratio) / chi2) ** 0.5)
    return ends[0], ends[1]
