"""An uncertainty budget: components, their combined standard uncertainty, and the expanded one.

After JCGM 100:2008, "Guide to the expression of uncertainty in measurement" (GUM). Components are uncorrelated, and the
result is close to linear in them. The module does not estimate a component: `sessions` gives the statistical ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sojourn.statistics.interval import student_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

Evaluation = Literal["A", "B"]
"""A: from the scatter of the measurements. B: from any other source, such as a data sheet (GUM 2.3.2, 2.3.3)."""

Distribution = Literal["normal", "student-t", "rectangular"]


@dataclass(frozen=True, slots=True)
class Component:
    """One source of uncertainty: its standard uncertainty u_i in `unit`, and its effect on the result.

    `sensitivity` is c_i, the change of the result for a change of the source by one `unit`; it may be negative.
    `degrees` of freedom state how well u_i is known; infinite where it is exact. ValueError where the standard
    uncertainty is negative or not finite, the sensitivity is not finite, or degrees are not above 0.
    """

    name: str
    evaluation: Evaluation
    standard_uncertainty: float
    unit: str
    distribution: Distribution = "normal"
    sensitivity: float = 1.0
    degrees: float = math.inf

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid uncertainty."""
        if not (math.isfinite(self.standard_uncertainty) and self.standard_uncertainty >= 0):
            raise ValueError(f"{self.name}: a standard uncertainty is finite and not negative")
        if not math.isfinite(self.sensitivity):
            raise ValueError(f"{self.name}: a sensitivity is finite")
        if not self.degrees > 0:
            raise ValueError(f"{self.name}: degrees of freedom are above 0")

    @property
    def contribution(self) -> float:
        """|c_i|·u_i, in the unit of the result."""
        return abs(self.sensitivity) * self.standard_uncertainty


@dataclass(frozen=True, slots=True)
class Budget:
    """Components and their combination; `combined` and `expanded` are in the unit of the result."""

    components: tuple[Component, ...]
    combined: float
    """The combined standard uncertainty u_c."""
    effective_degrees: float
    """Infinite where all contributing components are known exactly."""
    coverage_factor: float
    """k: Student's quantile for the effective degrees of freedom."""
    expanded: float
    """U = k·u_c: the result ± U holds the truth with probability `level`."""
    level: float

    def share(self, component: Component) -> float:
        """Return one component's share of the combined variance, from 0 to 1."""
        return (component.contribution / self.combined) ** 2


def combine(components: Iterable[Component], level: float = 0.95) -> Budget:
    """Return the budget of uncorrelated components.

    u_c² is the sum of (c_i·u_i)² (GUM 5.1.2). The effective degrees of freedom are those of Welch and Satterthwaite
    (GUM G.4.1; Satterthwaite, 1946, "An approximate distribution of estimates of variance components"), not rounded to
    an integer (GUM G.6.4 allows either). ValueError where no component contributes: a result without uncertainty lacks
    a component.
    """
    several = tuple(components)
    combined = math.hypot(*(one.contribution for one in several))
    if not combined > 0:
        raise ValueError("a budget has at least one component that contributes")
    inverse = sum((one.contribution / combined) ** 4 / one.degrees for one in several)
    effective = 1 / inverse if inverse > 0 else math.inf
    factor = student_quantile(effective, level)
    return Budget(several, combined, effective, factor, factor * combined, level)


def rectangular(
    name: str, half_width: float, unit: str, sensitivity: float = 1.0, degrees: float = math.inf
) -> Component:
    """Return a component of type B that lies anywhere within ± `half_width` of 0: u = a/√3 (GUM 4.3.7)."""
    return Component(name, "B", half_width / math.sqrt(3), unit, "rectangular", sensitivity, degrees)


def normal(name: str, expanded: float, unit: str, coverage_factor: float = 2.0, sensitivity: float = 1.0) -> Component:
    """Return a component of type B that is stated as an expanded uncertainty, as on a calibration certificate: u = U/k.

    GUM 4.3.3; a coverage factor of 2 holds about 95 % of a normal distribution. Degrees of freedom are infinite.
    """
    if not coverage_factor > 0:
        raise ValueError(f"{name}: a coverage factor is above 0")
    return Component(name, "B", expanded / coverage_factor, unit, "normal", sensitivity)
