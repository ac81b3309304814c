"""Compare two analysed runs: for every figure that both have, the difference, its interval, and the answer.

The interval is Zou and Donner's for a difference of two independent estimates (MOVER): it is made of both runs' own
intervals, whatever their shape, each converted to 95 % by Student's quantiles for its `n`. The p of no difference is
Student's too, and agrees with it: p is below 0.05 exactly where the interval excludes zero. The degrees of freedom are
Welch and Satterthwaite's.

A figure is equivalent where its whole interval lies within the margin. Otherwise it is better, worse or, where no
direction is known, different, if Benjamini and Hochberg's q over the leading figures is at most 0.05 (over the others
for those that do not lead); and inconclusive if not. The rule is valid under positive dependence (Benjamini and
Yekutieli, 2001), as between cells that share their direct link.

`covers` states the scope of the two intervals: the bed that was measured, or rebuilt beds. Where a history knows the
variation of runs of the same bed between boots and days (`Known`), it is part of the interval of two runs on different
ones. Where it knows the variation of runs on one boot, the excess over their own intervals is part of every interval of
a leading figure: a machine drifts within a day. The module reads rows of results and nothing else.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy import special

from sojourn.analysis.leading import direction_of, leading_of
from sojourn.records.results import RESULTS, SETTINGS
from sojourn.statistics.discovery import LEAST_VALUES, benjamini_hochberg
from sojourn.statistics.sessions import LEAST_SESSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.statistics.nested import Component, Scatter

LEVEL = 0.95
MOST_FALSE = 1 - LEVEL
"""The expected share of false ones among the reported differences, at most."""

VALUES = frozenset({
    "estimate", "ci_low", "ci_high", "level", "unit", "n", "sessions", "probes", "q_value", "cell", "clock", "source",
    "findings", "clock_bound_ns", "clock_error95_ns",
})  # fmt: skip
FACTORS = (*(name for name in RESULTS if name not in VALUES), *SETTINGS)
"""The factors that identify a figure."""

BETTER, WORSE, DIFFERS, EQUIVALENT, OPEN = "better", "worse", "differs", "equivalent", "inconclusive"
NOTHING_SHARED = "nothing in common"
ONE_BED, BEDS, BOOTS = "one bed", "rebuilt beds", "boots and days"
SIDE = ("estimate", "ci_low", "ci_high", "level", "n", "sessions", "findings")
WITHIN_BEDS = ("within_bed", "hodges_lehmann")
"""Statistics whose interval counts pairs within beds, however many beds there are."""
PLAIN = re.compile(r"[\w:./+-]+")
"""A factor's value that needs no quotes in a name."""


@dataclass(frozen=True, slots=True)
class Margin:
    """Differences that do not matter: the larger of a share of the first run's figure and an absolute value.

    The absolute value is a time for times, and a share for ratios; a figure without an applicable part has no margin.
    """

    relative: float | None = None
    time_ns: float | None = None
    share: float | None = None

    def of(self, estimate: float, unit: str | None) -> float | None:
        """Return the margin of a figure, in its unit."""
        absolute = self.time_ns if unit == "ns" else self.share if unit == "1" else None
        relative = None if self.relative is None else self.relative * abs(estimate)
        return max((part for part in (relative, absolute) if part is not None), default=None)


USUAL_MARGIN = Margin(relative=0.05, time_ns=50.0, share=0.001)

Key = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known:
    """The variation that a history knows of each run's bed: components by the `key_of` a figure's row."""

    beds: tuple[Mapping[Key, Component], Mapping[Key, Component]] = field(default_factory=lambda: ({}, {}))
    same_occasion: bool = False
    """Whether both runs were on one boot and day: the variation between boots is then not part of their difference."""
    repeats: tuple[Mapping[Key, Scatter], Mapping[Key, Scatter]] = field(default_factory=lambda: ({}, {}))
    """The variation of other runs on one boot and day, where enough were recorded."""

    def of(self, key: Key) -> tuple[Component, Component] | None:
        """Return the components of a figure for both runs; where only one bed's is known, it stands for both."""
        return either(*(bed.get(key) for bed in self.beds))

    def repeat_of(self, key: Key) -> tuple[Scatter, Scatter] | None:
        """Return the scatter of runs on one boot for both runs; as with components."""
        return either(*(bed.get(key) for bed in self.repeats))


def either(first: T | None, second: T | None) -> tuple[T, T] | None:
    """Return both values, a known one in place of an unknown one; None where neither is known."""
    known = first or second
    return None if known is None else (first or known, second or known)


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True)
class Part:
    """A variance that adds to a difference besides the runs' own, and its degrees of freedom."""

    variance: float
    degrees: float

    @property
    def reach(self) -> float:
        """Half the width of its 95 % interval."""
        return quantile(self.degrees, LEVEL) * math.sqrt(self.variance)


def shared_results(
    one: list[dict[str, Any]],
    two: list[dict[str, Any]],
    margin: Margin = USUAL_MARGIN,
    known: Known = NOTHING_KNOWN,
) -> list[dict[str, Any]]:
    """Return the figures with equal factors: both sides, the second minus the first, and the answer."""
    others = {key_of(row): row for row in two}
    found = []
    for row in one:
        if other := others.get(key_of(row)):
            sides = [{key: side.get(key) for key in SIDE} for side in (row, other)]
            names = {"name": name_of(row)} | {factor: row.get(factor) for factor in FACTORS} | {"unit": row.get("unit")}
            names["leading"] = leading_of(row) is not None
            judged = [side | {"sessions": beds_behind(side, str(row.get("statistic")))} for side in sides]
            found.append(names | {"runs": sides, **judged_with(judged, key_of(row), known)})
    for leads in (True, False):
        decide([row for row in found if row["leading"] is leads], margin)
    return found


def judged_with(sides: Sequence[dict[str, Any]], key: Key, known: Known) -> dict[str, Any]:
    """Return the difference of two sides, its scope, and the parts that come from a history."""
    one, two = sides
    components, scatters = known.of(key), known.repeat_of(key)
    nothing = {"between_boots": None, "between_runs": None, "covers": covered(one, two)}
    if (components is None and scatters is None) or not has_interval(one) or not has_interval(two):
        return difference(one, two) | nothing
    said = nothing | {"between_runs": scatter_said(scatters)}
    if components is None or known.same_occasion:
        found = difference(one, two, beyond_own_intervals(scatters))
        return found | said | ({} if scatters is None else {"covers": BEDS})
    boots = {"sd": max(one.between for one in components), "occasions": min(one.groups for one in components)}
    # The scatter of single runs of each boot contains that of runs on one boot: count it once.
    seen_apart = all(one.is_replicated for one in components)
    parts = [*(beyond_own_intervals(scatters) if seen_apart else []), *between_boots(components)]
    return difference(one, two, parts) | said | {"between_boots": boots, "covers": BOOTS}


def scatter_said(scatters: tuple[Scatter, Scatter] | None) -> dict[str, Any] | None:
    """Return the larger of two scatters, with its degrees of freedom."""
    if scatters is None:
        return None
    larger = max(scatters, key=lambda one: one.sd)
    return {"sd": larger.sd, "degrees": larger.degrees}


def between_boots(components: tuple[Component, Component]) -> list[Part]:
    """Return the variance that boots and days add to both runs; a component of one bed counts for both, known once."""
    first, second = components
    if first == second:
        return [Part(2 * first.between**2, first.degrees)] if first.between > 0 else []
    return [Part(one.between**2, one.degrees) for one in components if one.between > 0]


def beyond_own_intervals(scatters: tuple[Scatter, Scatter] | None) -> list[Part]:
    """Return the variance between runs on one boot beyond their own intervals, of both; of one bed it is known once."""
    if scatters is None:
        return []
    first, second = scatters
    if first == second:
        return [Part(2 * first.sd**2, first.degrees)] if first.sd > 0 else []
    return [Part(one.sd**2, one.degrees) for one in scatters if one.sd > 0]


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key of a figure's row; runs of an earlier version lack some factors."""
    return tuple(row.get(factor) for factor in FACTORS)


def name_of(row: dict[str, Any]) -> str:
    """Return a figure's name for `--fail-if`: "device_latency.mean[device=bridge,reference=direct,icmp_bytes=64]"."""
    given = {factor: row.get(factor) for factor in FACTORS if factor not in {"quantity", "statistic"}}
    inside = ",".join(f"{factor}={plain(value)}" for factor, value in given.items() if value is not None)
    return f"{row.get('quantity')}.{row.get('statistic')}[{inside}]"


def plain(value: Any) -> str:
    """Return a factor's value; in JSON's quotes where it has anything but letters, digits and a few signs."""
    return str(value) if PLAIN.fullmatch(str(value)) else json.dumps(str(value), ensure_ascii=False)


def covered(one: dict[str, Any], two: dict[str, Any]) -> str:
    """Return the scope of both intervals: the measured bed, or rebuilt ones."""
    return BEDS if side_covers_beds(one) and side_covers_beds(two) else ONE_BED


def beds_behind(side: dict[str, Any], statistic: str) -> int | None:
    """Return the number of beds an interval is over; None where it counts values within them, or beds are too few."""
    beds = side.get("sessions")
    return beds if beds and beds >= LEAST_SESSIONS and statistic not in WITHIN_BEDS else None


def side_covers_beds(side: dict[str, Any]) -> bool:
    """Return whether an interval is over several beds."""
    return side.get("sessions") is not None


def has_interval(side: dict[str, Any]) -> bool:
    """Return whether there is an estimate with both ends of its interval."""
    return None not in (side["estimate"], side["ci_low"], side["ci_high"])


def difference(one: dict[str, Any], two: dict[str, Any], parts: Sequence[Part] = ()) -> dict[str, Any]:
    """Return the second minus the first; with 95 % interval and the p of no difference if both have an interval."""
    nothing = {"difference": None, "ci_low": None, "ci_high": None, "p": None}
    if one["estimate"] is None or two["estimate"] is None:
        return nothing
    d = two["estimate"] - one["estimate"]
    if not has_interval(one) or not has_interval(two):
        return nothing | {"difference": d}
    (below1, above1), (below2, above2) = reaches(one), reaches(two)
    more = [part.reach for part in parts]
    below, above = math.hypot(below2, above1, *more), math.hypot(above2, below1, *more)
    errors = [standard_error(side) for side in (one, two)]
    own = [Part(error * error, degrees_of_side(side)) for error, side in zip(errors, (one, two), strict=True)]
    p = p_of(abs(d), below if d > 0 else above, degrees_of([*own, *parts]))
    return {"difference": d, "ci_low": d - below, "ci_high": d + above, "p": p}


def reaches(side: dict[str, Any]) -> tuple[float, float]:
    """Return how far an interval reaches below and above its estimate, converted from its own level to 95 %."""
    level = side.get("level") or LEVEL
    own = reach_in_errors(side, level) if 0 < level < 1 else 0.0
    scale = reach_in_errors(side, LEVEL) / own if own > 0 else 1.0
    return scale * (side["estimate"] - side["ci_low"]), scale * (side["ci_high"] - side["estimate"])


def reach_in_errors(side: dict[str, Any], level: float) -> float:
    """Return Student's quantile for the interval's degrees of freedom; the normal one if unknown or below three
    values."""
    return quantile(degrees_of_side(side), level)


def quantile(degrees: float, level: float) -> float:
    """Return Student's two-sided quantile; the normal one for infinitely many degrees of freedom."""
    share = (1 + level) / 2
    return float(special.ndtri(share) if math.isinf(degrees) else special.stdtrit(degrees, share))


def degrees_of_side(side: dict[str, Any]) -> float:
    """Return the degrees of freedom of a figure: its sessions, or else its pairs, rounds or trials, minus one."""
    n = side.get("sessions") or side.get("n")
    return n - 1 if n and n >= LEAST_VALUES else math.inf


def standard_error(side: dict[str, Any]) -> float:
    """Return the standard error, from the mean reach of the interval to both sides."""
    return sum(reaches(side)) / 2 / reach_in_errors(side, LEVEL)


def degrees_of(parts: Sequence[Part]) -> float:
    """Return Welch and Satterthwaite's degrees of freedom of a sum of variances."""
    largest = max(part.variance for part in parts)
    if not 0 < largest < math.inf:
        return math.inf
    # Shares of the largest variance, since squares of variances may be larger than any number.
    shares = [(part.variance / largest, part.degrees) for part in parts]
    below = sum(share**2 / degrees for share, degrees in shares)
    return sum(share for share, _ in shares) ** 2 / below if below > 0 else math.inf


def p_of(distance: float, reach: float, degrees: float) -> float:
    """Return the two-sided p of an estimate at this distance from zero, from its interval's reach towards zero."""
    if distance == 0 or reach == 0:
        return float(distance == 0)
    errors = distance / reach * quantile(degrees, LEVEL)
    return float(2 * (special.ndtr(-errors) if math.isinf(degrees) else special.stdtr(degrees, -errors)))


def decide(rows: list[dict[str, Any]], margin: Margin) -> None:
    """Add to each figure its q over all of these figures, its margin, and the answer."""
    for row in rows:
        row |= {"q_value": None, "margin": None, "answer": OPEN}
    judged = [row for row in rows if row["p"] is not None]
    if not judged:
        return
    for row, value in zip(judged, benjamini_hochberg(np.array([row["p"] for row in judged])), strict=True):
        row["q_value"] = float(value)
        row["margin"] = margin.of(row["runs"][0]["estimate"], row["unit"])
        row["answer"] = answer_of(row)


def answer_of(row: dict[str, Any]) -> str:
    """Return the answer: better, worse, differs, equivalent or inconclusive."""
    if row["margin"] is not None and -row["margin"] <= row["ci_low"] and row["ci_high"] <= row["margin"]:
        return EQUIVALENT
    if row["q_value"] > MOST_FALSE:
        return OPEN
    direction = direction_of(row)
    if direction is None:
        return DIFFERS
    return BETTER if (row["difference"] < 0) is (direction == "less") else WORSE


def over_all(rows: list[dict[str, Any]]) -> str:
    """Return the answer over the leading figures: worse if any is, else better or differs if any is; equivalent if all
    are."""
    answers = {row["answer"] for row in rows if row["leading"] and row["p"] is not None}
    if not any(row["leading"] for row in rows):
        return NOTHING_SHARED
    first = next((one for one in (WORSE, BETTER, DIFFERS) if one in answers), None)
    return first or (EQUIVALENT if answers == {EQUIVALENT} else OPEN)
