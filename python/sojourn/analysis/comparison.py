"""Two analysed runs side by side: for every figure that both have, the difference, its interval, and what it says.

The interval is Zou and Donner's of a difference of two independent estimates (MOVER): it is made of both runs' own
intervals, whatever their shape, each brought to 95 % by Student's quantiles for the `n` that it is over. Its p of no
difference is Student's too, and agrees with it: p is below 0.05 exactly where the interval excludes zero. The degrees
of freedom are Welch and Satterthwaite's.

A figure is equivalent where its whole interval lies within the margin. Otherwise it is better, worse or, where no
direction is known, differs, if Benjamini and Hochberg's q over the leading figures is at most 0.05 (over the others
for those that do not lead); and inconclusive if not. The rule holds under positive dependence (Benjamini and
Yekutieli, 2001), as cells that share their direct link have.

It reaches as far as the two intervals do: `covers` says whether that is the bed that was measured, or beds made anew.
Where a history knows how far runs of the same bed differ between boots and days (`Known`), that is part of the interval
of two runs on different ones; and where it knows how far runs on one boot differ, what that is beyond their own
intervals is part of every interval of a leading figure: a machine drifts within a day.
It reads rows of results and nothing else.
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
"""The share of false ones among the differences that are reported, at most and on average."""

VALUES = frozenset({
    "estimate", "ci_low", "ci_high", "level", "unit", "n", "sessions", "probes", "q_value", "cell", "clock", "source",
    "findings", "clock_bound_ns", "clock_error95_ns",
})  # fmt: skip
FACTORS = (*(name for name in RESULTS if name not in VALUES), *SETTINGS)
"""What makes two rows the same figure."""

BETTER, WORSE, DIFFERS, EQUIVALENT, OPEN = "better", "worse", "differs", "equivalent", "inconclusive"
NOTHING_SHARED = "nothing in common"
ONE_BED, BEDS, BOOTS = "one bed", "rebuilt beds", "boots and days"
SIDE = ("estimate", "ci_low", "ci_high", "level", "n", "sessions", "findings")
WITHIN_BEDS = ("within_bed", "hodges_lehmann")
"""Statistics whose interval counts pairs within beds, however many beds they are of."""
PLAIN = re.compile(r"[\w:./+-]+")
"""A factor's value that needs no quotes in a name."""


@dataclass(frozen=True, slots=True)
class Margin:
    """Differences that do not matter: the larger of a share of the first run's figure and of an absolute part.

    The absolute part is a time for times, and a share for ratios; a figure that no part applies to has no margin.
    """

    relative: float | None = None
    time_ns: float | None = None
    share: float | None = None

    def of(self, estimate: float, unit: str | None) -> float | None:
        """The margin of a figure, in its unit."""
        absolute = self.time_ns if unit == "ns" else self.share if unit == "1" else None
        relative = None if self.relative is None else self.relative * abs(estimate)
        return max((part for part in (relative, absolute) if part is not None), default=None)


USUAL_MARGIN = Margin(relative=0.05, time_ns=50.0, share=0.001)

Key = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known:
    """What a history knows of each run's bed: the components of figures, by `key_of` their rows."""

    beds: tuple[Mapping[Key, Component], Mapping[Key, Component]] = field(default_factory=lambda: ({}, {}))
    same_occasion: bool = False
    """Whether both runs were made on one boot and one day, which then is no part of their difference."""
    repeats: tuple[Mapping[Key, Scatter], Mapping[Key, Scatter]] = field(default_factory=lambda: ({}, {}))
    """How far other runs on one boot and day differ, where enough of them were seen."""

    def of(self, key: Key) -> tuple[Component, Component] | None:
        """The components of a figure for the first run and the second; that of the other bed where only it is known."""
        return either(*(bed.get(key) for bed in self.beds))

    def repeat_of(self, key: Key) -> tuple[Scatter, Scatter] | None:
        """The scatter of runs on one boot, for the first run and the second; as with components."""
        return either(*(bed.get(key) for bed in self.repeats))


def either(first: T | None, second: T | None) -> tuple[T, T] | None:
    """Both, the one that is known in place of the other; None where neither is."""
    known = first or second
    return None if known is None else (first or known, second or known)


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True)
class Part:
    """A variance that is part of a difference beside both runs' own, and its degrees of freedom."""

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
    """The figures under the same factors: both sides, the second less the first, and what that says."""
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
    """The difference of two sides, what it covers, and what of a history is in it."""
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
    # What single runs of each boot differ by holds what runs on one boot do: it is not counted a second time.
    seen_apart = all(one.is_replicated for one in components)
    parts = [*(beyond_own_intervals(scatters) if seen_apart else []), *between_boots(components)]
    return difference(one, two, parts) | said | {"between_boots": boots, "covers": BOOTS}


def scatter_said(scatters: tuple[Scatter, Scatter] | None) -> dict[str, Any] | None:
    """The larger of two scatters, with its degrees of freedom."""
    if scatters is None:
        return None
    larger = max(scatters, key=lambda one: one.sd)
    return {"sd": larger.sd, "degrees": larger.degrees}


def between_boots(components: tuple[Component, Component]) -> list[Part]:
    """The variance that boots and days add to both runs; of one bed it is known once only."""
    first, second = components
    if first == second:
        return [Part(2 * first.between**2, first.degrees)] if first.between > 0 else []
    return [Part(one.between**2, one.degrees) for one in components if one.between > 0]


def beyond_own_intervals(scatters: tuple[Scatter, Scatter] | None) -> list[Part]:
    """What runs on one boot differ by beyond their own intervals, of both; of one bed it is known once only."""
    if scatters is None:
        return []
    first, second = scatters
    if first == second:
        return [Part(2 * first.sd**2, first.degrees)] if first.sd > 0 else []
    return [Part(one.sd**2, one.degrees) for one in scatters if one.sd > 0]


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two rows the same figure; runs of an earlier version lack some factors."""
    return tuple(row.get(factor) for factor in FACTORS)


def name_of(row: dict[str, Any]) -> str:
    """What a figure is called in `--fail-if`: "device_latency.mean[device=bridge,reference=direct,icmp_bytes=64]"."""
    given = {factor: row.get(factor) for factor in FACTORS if factor not in {"quantity", "statistic"}}
    inside = ",".join(f"{factor}={plain(value)}" for factor, value in given.items() if value is not None)
    return f"{row.get('quantity')}.{row.get('statistic')}[{inside}]"


def plain(value: Any) -> str:
    """A factor's value; in JSON's quotes where it has anything but letters, digits and a few signs."""
    return str(value) if PLAIN.fullmatch(str(value)) else json.dumps(str(value), ensure_ascii=False)


def covered(one: dict[str, Any], two: dict[str, Any]) -> str:
    """Which beds both intervals speak of: the one that was measured on, or others made like it."""
    return BEDS if side_covers_beds(one) and side_covers_beds(two) else ONE_BED


def beds_behind(side: dict[str, Any], statistic: str) -> int | None:
    """Over how many beds an interval is; None where it counts what is within them: no interval is over two."""
    beds = side.get("sessions")
    return beds if beds and beds >= LEAST_SESSIONS and statistic not in WITHIN_BEDS else None


def side_covers_beds(side: dict[str, Any]) -> bool:
    """Whether an interval is over several beds."""
    return side.get("sessions") is not None


def has_interval(side: dict[str, Any]) -> bool:
    """Whether there is an estimate with both ends of its interval."""
    return None not in (side["estimate"], side["ci_low"], side["ci_high"])


def difference(one: dict[str, Any], two: dict[str, Any], parts: Sequence[Part] = ()) -> dict[str, Any]:
    """The second less the first; its 95 % interval and the p of no difference where both have an interval."""
    nothing = {"difference": None, "ci_low": None, "ci_high": None, "p": None}
    if one["estimate"] is None or two["estimate"] is None:
        return nothing
    d = two["estimate"] - one["estimate"]
    if not has_interval(one) or not has_interval(two):
        return nothing | {"difference": d}
    (below1, above1), (below2, above2) = reaches(one), reaches(two)
    more = [part.reach for part in parts]
    below, above = math.hypot(below2, above1, *more), math.hypot(above2, below1, *more)
    own = [Part(standard_error(side) ** 2, degrees_of_side(side)) for side in (one, two)]
    p = p_of(abs(d), below if d > 0 else above, degrees_of([*own, *parts]))
    return {"difference": d, "ci_low": d - below, "ci_high": d + above, "p": p}


def reaches(side: dict[str, Any]) -> tuple[float, float]:
    """How far an interval reaches below and above its estimate, brought to 95 % from the level that it has."""
    level = side.get("level") or LEVEL
    scale = reach_in_errors(side, LEVEL) / reach_in_errors(side, level) if level < 1 else 1.0
    return scale * (side["estimate"] - side["ci_low"]), scale * (side["ci_high"] - side["estimate"])


def reach_in_errors(side: dict[str, Any], level: float) -> float:
    """Student's quantile for what the interval is over; the normal one where that is not known or below three."""
    return quantile(degrees_of_side(side), level)


def quantile(degrees: float, level: float) -> float:
    """Student's two-sided quantile, the normal one for infinitely many degrees of freedom."""
    share = (1 + level) / 2
    return float(special.ndtri(share) if math.isinf(degrees) else special.stdtrit(degrees, share))


def degrees_of_side(side: dict[str, Any]) -> float:
    """One less than the pairs, rounds or trials that a figure is over; where it is over sessions, than those."""
    n = side.get("sessions") or side.get("n")
    return n - 1 if n and n >= LEAST_VALUES else math.inf


def standard_error(side: dict[str, Any]) -> float:
    """From the mean of how far the interval reaches to both sides."""
    return sum(reaches(side)) / 2 / reach_in_errors(side, LEVEL)


def degrees_of(parts: Sequence[Part]) -> float:
    """Welch and Satterthwaite's degrees of freedom of a sum of variances."""
    below = sum(part.variance**2 / part.degrees for part in parts)
    return sum(part.variance for part in parts) ** 2 / below if below > 0 else math.inf


def p_of(distance: float, reach: float, degrees: float) -> float:
    """Two-sided p of an estimate this far from zero, whose 95 % interval reaches so far towards it."""
    if distance == 0 or reach == 0:
        return float(distance == 0)
    errors = distance / reach * quantile(degrees, LEVEL)
    return float(2 * (special.ndtr(-errors) if math.isinf(degrees) else special.stdtr(degrees, -errors)))


def decide(rows: list[dict[str, Any]], margin: Margin) -> None:
    """Add to each figure its q over all of them, its margin, and the answer."""
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
    """Better, worse, differs, equivalent or inconclusive."""
    if row["margin"] is not None and -row["margin"] <= row["ci_low"] and row["ci_high"] <= row["margin"]:
        return EQUIVALENT
    if row["q_value"] > MOST_FALSE:
        return OPEN
    direction = direction_of(row)
    if direction is None:
        return DIFFERS
    return BETTER if (row["difference"] < 0) is (direction == "less") else WORSE


def over_all(rows: list[dict[str, Any]]) -> str:
    """One answer of the leading figures: worse if any is, else better or differs if any is; equivalent if all are."""
    answers = {row["answer"] for row in rows if row["leading"] and row["p"] is not None}
    if not any(row["leading"] for row in rows):
        return NOTHING_SHARED
    first = next((one for one in (WORSE, BETTER, DIFFERS) if one in answers), None)
    return first or (EQUIVALENT if answers == {EQUIVALENT} else OPEN)
