"""Two analysed runs side by side: for every figure that both have, the difference, its interval, and what it says.

The interval is Zou and Donner's of a difference of two independent estimates (MOVER): it is made of both runs' own
intervals, whatever their shape. It reaches as far as they do: what differs between any two runs of one machine, with
beds built anew, is in neither. It reads rows of results and nothing else.
"""

from __future__ import annotations

import math
from typing import Any

from sojourn.records.results import RESULTS

VALUES = frozenset({
    "estimate", "ci_low", "ci_high", "level", "unit", "n", "probes", "q_value", "cell", "clock", "source", "findings",
    "clock_bound_ns", "clock_error95_ns", "sessions",
})  # fmt: skip
FACTORS = tuple(name for name in RESULTS if name not in VALUES)
"""What makes two rows the same figure."""

DIFFER, NO_DIFFERENCE, OPEN = "differ", "no difference seen", "inconclusive"
SIDE = ("estimate", "ci_low", "ci_high", "level", "n", "findings")


def shared_results(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures under the same factors: both sides, the second less the first, and whether they differ."""
    others = {key_of(row): row for row in two}
    found = []
    for row in one:
        if other := others.get(key_of(row)):
            sides = [{key: side.get(key) for key in SIDE} for side in (row, other)]
            names = {factor: row.get(factor) for factor in FACTORS} | {"unit": row.get("unit")}
            found.append(names | {"runs": sides, **difference(*sides)})
    return found


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two rows the same figure; runs of an earlier version lack some factors."""
    return tuple(row.get(factor) for factor in FACTORS)


def difference(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """The second less the first, its 95 % interval where both have one, and what it says."""
    if one["estimate"] is None or two["estimate"] is None:
        return {"difference": None, "ci_low": None, "ci_high": None, "answer": OPEN}
    d = two["estimate"] - one["estimate"]
    if None in (one["ci_low"], one["ci_high"], two["ci_low"], two["ci_high"]):
        return {"difference": d, "ci_low": None, "ci_high": None, "answer": OPEN}
    low = d - math.hypot(two["estimate"] - two["ci_low"], one["ci_high"] - one["estimate"])
    high = d + math.hypot(two["ci_high"] - two["estimate"], one["estimate"] - one["ci_low"])
    return {"difference": d, "ci_low": low, "ci_high": high, "answer": NO_DIFFERENCE if low <= 0 <= high else DIFFER}
