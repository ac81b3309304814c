"""Our figures compared with a peer's over repetitions: medians, a ratio with its interval, and whether a target is met.

The interval is Hodges-Lehmann over the logarithms of the ratios of neighbouring runs, so that a repetition in which the
whole machine was slow counts once, for both sides.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any, Literal, NamedTuple

import numpy as np

from sojourn.statistics.signed_rank import hodges_lehmann


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a figure: at most, or at least, a limit."""

    side: Literal["at most", "at least"]
    limit: float

    def holds(self, value: float) -> bool:
        """Return whether a value meets the target."""
        return value <= self.limit if self.side == "at most" else value >= self.limit


class What(NamedTuple):
    """The subject of a line: the task of both sides, the peer, the figure and its unit."""

    task: str
    peer: str
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: our median, the peer's, and the value for the target: their ratio, or ours alone."""

    task: str
    peer: str
    name: str
    unit: str
    ours: float
    theirs: float
    is_ratio: bool
    measured: float
    ci_low: float | None
    ci_high: float | None
    level: float
    n: int
    target: Target | None

    @property
    def answer(self) -> str:
        """`met` or `not met`; with a question mark if the interval contains the limit."""
        if self.target is None:
            return ""
        said = "met" if self.target.holds(self.measured) else "not met"
        ends = [end for end in (self.ci_low, self.ci_high) if end is not None]
        sure = len(ends) == 2 and len({self.target.holds(end) for end in ends}) == 1
        return said if sure else f"{said}?"

    def as_json(self) -> dict[str, Any]:
        """The row for bench.json; null is what was not measured."""
        plain = {
            key: None if isinstance(value, float) and isnan(value) else value for key, value in asdict(self).items()
        }
        return {**plain, "answer": self.answer}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Row:
        """Return the row of bench.json."""
        found = {key: value for key, value in plain.items() if key != "answer"}
        numbers = {key: nan for key in ("ours", "theirs", "measured") if found[key] is None}
        target = None if found["target"] is None else Target(**found["target"])
        return cls(**{**found, **numbers, "target": target})


def absent(what: What, target: Target | None, *, is_ratio: bool) -> Row:
    """Return the line of a figure that no repetition measured."""
    return Row(
        task=what.task,
        peer=what.peer,
        name=what.name,
        unit=what.unit,
        ours=nan,
        theirs=nan,
        is_ratio=is_ratio,
        measured=nan,
        ci_low=None,
        ci_high=None,
        level=0.0,
        n=0,
        target=target,
    )


def ratio(what: What, pairs: list[tuple[float, float]], target: Target | None) -> Row:
    """Return ours divided by the peer's, from (ours, theirs) of each repetition."""
    ours, theirs = np.array(pairs, dtype=np.float64).T
    found = hodges_lehmann(np.log(ours) - np.log(theirs))
    low, high = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
    return Row(
        task=what.task,
        peer=what.peer,
        name=what.name,
        unit=what.unit,
        ours=float(np.median(ours)),
        theirs=float(np.median(theirs)),
        is_ratio=True,
        measured=float(np.exp(found.estimate)),
        ci_low=low,
        ci_high=high,
        level=found.level,
        n=found.n,
        target=target,
    )


def alone(what: What, pairs: list[tuple[float, float]], target: Target | None) -> Row:
    """Return our own figure over the repetitions, compared with the target; the peer's median is shown beside it."""
    ours, theirs = np.array(pairs, dtype=np.float64).T
    found = hodges_lehmann(ours)
    return Row(
        task=what.task,
        peer=what.peer,
        name=what.name,
        unit=what.unit,
        ours=float(np.median(ours)),
        theirs=float(np.median(theirs)),
        is_ratio=False,
        measured=found.estimate,
        ci_low=found.low,
        ci_high=found.high,
        level=found.level,
        n=found.n,
        target=target,
    )
