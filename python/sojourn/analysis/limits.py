"""Limits that a user sets on figures of two compared runs: which fail, which hold, and which are inconclusive.

A limit is `NAME > AMOUNT` or `NAME < AMOUNT`. NAME is a figure's name of `comparison.name_of`; the statistic and any
factor may be omitted, and then every matching figure must keep the limit. An AMOUNT with a sign is a change of the
second run from the first: `+5%` of the first run's figure, `+200ns`, `-1Mbit/s`, `+0.1pp` of a ratio. One without a
sign is a bound on the second run's figure itself: `2us`, `900Mbit/s`, `1%` of a ratio.

Only the interval decides: a limit fails where the whole 95 % interval lies beyond it, holds where none of it does, and
is otherwise inconclusive, also where a figure has no interval. Reads compared rows; measures and prints nothing.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.analysis.comparison import FACTORS, OPEN, has_interval, reaches
from sojourn.analysis.leading import A_A
from sojourn.errors import RequestError, did_you_mean
from sojourn.units import nanoseconds, rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAILS, HOLDS = "fails", "holds"
LIMIT = re.compile(r"(.+?)\s*([<>])\s*([^<>]+)", re.DOTALL)
NAME = re.compile(r"(\w+)(?:\.([\w.]+))?(?:\[(.*)\])?", re.DOTALL)
AMOUNT = re.compile(r"([+-]?)(\d+(?:\.\d+)?)\s*(\S*)")
FACTOR = re.compile(r'\s*(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|[^",\]]+?)\s*(?:,|$)')
EXPECTED = 'expected NAME > AMOUNT or NAME < AMOUNT, such as "device_latency > +5%" or "rtt.p99[device=bridge] > 2ms"'


@dataclass(frozen=True, slots=True)
class Limit:
    """A parsed limit."""

    text: str
    quantity: str
    statistic: str | None
    factors: Mapping[str, str]
    is_above: bool
    sign: str
    number: str
    unit: str

    def picks(self, row: dict[str, Any]) -> bool:
        """Return whether the limit applies to this figure; to the A/A control only if named."""
        if row["device"] == A_A and "device" not in self.factors:
            return False
        right = row["quantity"] == self.quantity and self.statistic in {None, row["statistic"]}
        return right and all(is_value(row.get(factor), value) for factor, value in self.factors.items())

    def bound(self, row: dict[str, Any]) -> float:
        """Return the limit in the figure's unit."""
        factor = -1.0 if self.sign == "-" else 1.0
        if self.sign and self.unit == "%":
            return factor * float(self.number) / 100 * abs(float(row["runs"][0]["estimate"] or 0.0))
        size = in_unit(self.number, self.unit, row["unit"])
        if size is None:
            more = ": write +5% or -5% for a change of the first run's figure" if self.unit == "%" else ""
            raise RequestError(
                f"--fail-if {self.text}: {self.number}{self.unit} is no amount of {row['quantity']}, which is in "
                f"{'shares (%, pp)' if row['unit'] == '1' else row['unit']}{more}"
            )
        return factor * size


def read_limit(text: str) -> Limit:
    """Parse a limit."""
    found = LIMIT.fullmatch(text.strip())
    name = NAME.fullmatch(found[1]) if found else None
    amount = AMOUNT.fullmatch(found[3].strip()) if found else None
    if found is None or name is None or amount is None:
        raise RequestError(f"--fail-if {text}: {EXPECTED}")
    sign, number, unit = amount.groups()
    return Limit(
        text, name[1], name[2], read_factors(name[3] or "", text), found[2] == ">", sign, number, unit
    )  # fmt: skip


def read_factors(inside: str, text: str) -> dict[str, str]:
    """Parse the factors between a name's brackets."""
    found, at = {}, 0
    while at < len(inside):
        one = FACTOR.match(inside, at)
        if one is None:
            raise RequestError(f"--fail-if {text}: expected FACTOR=VALUE, with commas between them, in the brackets")
        if one[1] not in FACTORS:
            raise RequestError(f"--fail-if {text}: no figure has a factor {one[1]!r}{did_you_mean(one[1], FACTORS)}")
        found[one[1]] = unquoted(one[2], text)
        at = one.end()
    return found


def unquoted(value: str, text: str) -> str:
    """Return a factor's value without its quotes."""
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except json.JSONDecodeError as error:
        raise RequestError(f"--fail-if {text}: {value} is no text in JSON's quotes") from error


def is_value(has: Any, asked: str) -> bool:
    """Return whether a factor of a figure has the requested value; numbers are compared by value."""
    if isinstance(has, bool) or not isinstance(has, int | float):
        return has is not None and str(has) == asked
    try:
        return float(asked) == has
    except ValueError:
        return False


def in_unit(number: str, unit: str, of_figure: str | None) -> float | None:
    """Return an amount in a figure's unit; None if the unit does not fit."""
    if of_figure == "ns" and (nanos := nanoseconds(f"{number}{unit}")) is not None:
        return float(nanos)
    if of_figure in {"1/s", "bit/s"} and (found := rate(f"{number}{unit}")) is not None:
        return float(found[1]) if found[0] == {"1/s": "pps"}.get(of_figure, of_figure) else None
    if of_figure == "1":
        return {"": float(number), "%": float(number) / 100, "pp": float(number) / 100}.get(unit)
    return float(number) if unit == of_figure else None


def judge(limits: Sequence[Limit], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each limit with its answer and those of its figures; RequestError where a limit matches no figure."""
    return [judge_one(limit, rows) for limit in limits]


def judge_one(limit: Limit, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a limit's answer: it fails if any of its figures does, and holds if all of them do."""
    figures = [figure(limit, row) for row in picked(limit, rows)]
    answers = {one["answer"] for one in figures}
    answer = FAILS if FAILS in answers else HOLDS if answers == {HOLDS} else OPEN
    return {"limit": limit.text, "answer": answer, "figures": figures}


def picked(limit: Limit, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures that a limit applies to: without a statistic only the leading ones, if there are any."""
    found = [row for row in rows if limit.picks(row)]
    if not found:
        names = {str(row["quantity"]) for row in rows}
        if limit.quantity not in names:
            meant = did_you_mean(limit.quantity, names) or f": they have {', '.join(sorted(names)) or 'none'}"
            raise RequestError(f"--fail-if {limit.text}: the runs have no figure {limit.quantity} in common{meant}")
        raise RequestError(
            f"--fail-if {limit.text}: no {limit.quantity} that both runs have is of that statistic and these factors: "
            "`--json` names them all"
        )
    leading = [row for row in found if row["leading"]]
    return leading if leading and limit.statistic is None else found


def figure(limit: Limit, row: dict[str, Any]) -> dict[str, Any]:
    """Return one figure under a limit: the judged value, its interval, the bound, and the answer."""
    value, interval = (row["difference"], difference_of(row)) if limit.sign else second_of(row)
    bound = limit.bound(row)
    low, high = interval or (None, None)
    shown = {"ci_low": low, "ci_high": None if high is None or math.isinf(high) else high}
    asked = {"name": row["name"], "of": "difference" if limit.sign else "second", "unit": row["unit"], "bound": bound}
    return asked | {"value": value} | shown | {"answer": answer_of(interval, bound, is_above=limit.is_above)}


def answer_of(interval: tuple[float, float] | None, bound: float, *, is_above: bool) -> str:
    """Return the answer: fails, holds or inconclusive."""
    if interval is None:
        return OPEN
    low, high = interval
    if not is_above:
        low, high, bound = -high, -low, -bound
    return FAILS if low > bound else HOLDS if high <= bound else OPEN


def difference_of(row: dict[str, Any]) -> tuple[float, float] | None:
    """Return the interval of the difference."""
    return None if row["ci_low"] is None or row["ci_high"] is None else (row["ci_low"], row["ci_high"])


def second_of(row: dict[str, Any]) -> tuple[float | None, tuple[float, float] | None]:
    """Return the second run's figure and its interval, at 95 %; an open upper end is infinite."""
    side = row["runs"][1]
    if has_interval(side):
        below, above = reaches(side)
        return side["estimate"], (side["estimate"] - below, side["estimate"] + above)
    return side["estimate"], None if side["ci_low"] is None else (side["ci_low"], math.inf)
