"""Configured against measured values: a check, its result, and whether it is within its limit.

A check passes when its whole 95 % interval lies within the limit, fails when the whole of a wider interval lies beyond
it, and is otherwise inconclusive. A test for randomness passes when its p raises no alarm and there were enough packets
to raise one; with fewer it is inconclusive. The probability that any check of a run fails although all is as configured
is at most `ALARM`: each check has an equal part of it (Bonferroni), in its p or in the level of its interval. Where
nothing is random (a sum, a departure time), a single wrong packet fails the check.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.analysis.rows import finite
from sojourn.statistics.interval import Interval
from sojourn.units import nanoseconds

if TYPE_CHECKING:
    from sojourn.analysis.run import Run

ALARM = 0.01
"""The probability that a whole run has a failing check although nothing is wrong."""

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"

LIMITS = {"offset": 18e3, "p50": 18e3, "p99": 100e3, "p999": 1e6, "rate": 0.001, "cdf": 0.05}
"""The largest errors that count as configured: ns, shares. 18 µs is the best figure published for an emulator in a
virtual machine, 100 µs the emulator's own limit. A plan's [limits] override them."""


def limits_of(run: Run) -> dict[str, float]:
    """Return the limits of a run: its plan's, else the built-in ones."""
    told = run.plan.get("limits") or {}
    return {name: number(told.get(name, limit)) for name, limit in LIMITS.items()}


def number(told: float | str) -> float:
    """Return a limit as a plan writes it: a share, or a time with its unit, converted to ns."""
    if not isinstance(told, str):
        return float(told)
    if (nanos := nanoseconds(told)) is not None:
        return float(nanos)
    return float(told.removesuffix("%")) * (0.01 if told.endswith("%") else 1.0)


Reading = Callable[[float], Interval]
"""Returns a value with its interval, for a given probability that the interval misses the true value."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A check: the configured value, the measured one, and the range allowed for the true value (in one unit).

    `reading` gives the measured value and its interval for a probability of error; `zone` is where the interval must
    lie or, without a reading, the value `measured`: an extreme, which has no interval. Without a zone, `p` is a test's,
    and `enough` states whether it had enough packets. `exact` replaces both: the number of wrong packets, where a
    single one is a failure. `needed` is the number of packets at which a check within a zone passes nine times in ten
    if everything is as configured.
    """

    name: str
    of: str
    configured: float | None
    unit: str
    what: str
    reading: Reading | None = None
    zone: tuple[float, float] | None = None
    limit: float | None = None
    p: float | None = None
    enough: bool = True
    exact: int | None = None
    measured: float | None = None
    n: int = 0
    needed: int | None = None

    def answer(self, alpha: float) -> Answered:
        """Return the value and the verdict, at this probability of a false alarm."""
        if self.exact is not None:
            verdict = FAIL if self.exact else PASS if self.n else INCONCLUSIVE
            return Answered(self, Interval(float(self.exact), None, None, 1.0, self.n), verdict)
        shown = Interval(float("nan") if self.measured is None else self.measured, None, None, 0.95, self.n)
        if self.reading is not None:
            shown = self.reading(0.05)
        if self.zone is not None and self.measured is not None:
            within = PASS if self.zone[0] <= self.measured <= self.zone[1] else FAIL
            return Answered(self, shown, INCONCLUSIVE if math.isnan(self.measured) else within)
        if self.zone is None or self.reading is None:
            return Answered(self, shown, self._by_p(alpha))
        return Answered(self, shown, place(shown, self.reading(alpha), self.zone))

    def _by_p(self, alpha: float) -> str:
        if self.p is None or math.isnan(self.p):
            return INCONCLUSIVE
        if self.p < alpha:
            return FAIL
        return PASS if self.enough else INCONCLUSIVE


def place(shown: Interval, sure: Interval, zone: tuple[float, float]) -> str:
    """Pass by the displayed interval; fail by the wider one, whose level limits false alarms."""
    if shown.low is not None and shown.high is not None and zone[0] <= shown.low and shown.high <= zone[1]:
        return PASS
    beyond = sure.low is not None and sure.high is not None and (sure.high < zone[0] or sure.low > zone[1])
    return FAIL if beyond else INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class Answered:
    """A check with its value (95 % interval) and its verdict."""

    asked: Asked
    value: Interval
    verdict: str


@dataclass(slots=True)
class Checks:
    """The checks of a run, collected first and answered together: their number determines the level of each."""

    several: list[tuple[str, int | None, str, Asked]] = field(default_factory=list)

    def add(self, device: str, cell: int | None, pipe: str, asked: list[Asked]) -> None:
        """Add the checks of one path and cell."""
        self.several += [(device, cell, pipe, one) for one in asked]

    @property
    def alpha(self) -> float:
        """The probability of a false alarm, for each check."""
        random = sum(one.exact is None for *_, one in self.several)
        return ALARM / max(1, random)

    def answered(self) -> list[dict[str, Any]]:
        """Return every check as in verdict.json."""
        alpha = self.alpha
        return [_tidy(place[:3], place[3].answer(alpha)) for place in self.several]


def _tidy(place: tuple[str, int | None, str], one: Answered) -> dict[str, Any]:
    asked, value = one.asked, one.value
    return {
        "device": place[0],
        "cell": place[1],
        "pipe": place[2],
        "check": asked.name,
        "of": asked.of,
        "what": asked.what,
        "configured": finite(asked.configured),
        "measured": finite(value.estimate),
        "ci_low": finite(value.low),
        "ci_high": finite(value.high),
        "level": value.level,
        "unit": asked.unit,
        "limit": finite(asked.limit),
        "p": finite(asked.p),
        "n": asked.n or value.n,
        "needed": asked.needed,
        "verdict": one.verdict,
    }
