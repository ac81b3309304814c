"""Method "variance": components of the variance between beds, starts and repeats, and what of the beds' is whose.

The value of a round is the round trip over the direct link, or the device's latency one way, at the plan's only cell:
of medians of blocks, since one probe that met other work would make most of the variance of means. Rounds of one start
are repeats. Beds on which all is redrawn give the components of the nested design: how far beds, starts on one bed, and
rounds of one start differ. All beds give the factorial: a bed's value is the median of its rounds, a row's variance
that of its beds, and the variance of a row is the sum of what is redrawn in it. Beds that were cut are left out.

Rows: quantity `variance_component`, statistics `bed`, `start`, `repeat`: standard deviations. Of a bed's value:
`bed_value` (all redrawn), one for each factor, and `rest`, what is left with all factors held. `variance_share`: the
part of `bed_value`'s variance. A variance that is estimated below zero is reported as 0; where its whole interval is,
the rows contradict the sum, and there is no interval. Intervals take effects for normal; so the lower end of a factor
is 0 unless ranks of deviations say too that beds differ more where it is redrawn, and that of any component is 0 where
it is above the upper end of the sum of all.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.pairs import rounds_of
from sojourn.analysis.rows import Row
from sojourn.analysis.run import DIRECT, WIRE
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.study import Study
from sojourn.analysis.surroundings import SESSION_MACHINE, session_machine
from sojourn.analysis.tester import stamp_sources, tester_findings
from sojourn.analysis.wording import DASH, US, decimals, fixed, percent
from sojourn.statistics.components import combine, factorial, nested, spreads_more
from sojourn.statistics.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run
    from sojourn.statistics.components import Variance

LEVEL = 0.95
CELL = 0
SIGNIFICANT_P = 0.01
"""The significance level of the rank test. Beds of one row share a median; with extreme values 5 % are below 2.5 %."""


@dataclass(frozen=True, slots=True)
class Beds:
    """The rounds of each complete bed (bed, start, repeat), the factors held on it, and the factors switched on."""

    rounds: NDArray[np.int64]
    held: list[tuple[str, ...]]
    on: list[tuple[str, ...]]

    def free(self) -> NDArray[np.bool_]:
        """Return for each bed whether all factors were redrawn."""
        return np.array([not held for held in self.held], dtype=np.bool_)


def study(run: Run) -> Study:
    """Return the components of every measurand, and the beds' values."""
    rounds = rounds_of(run)
    beds = beds_of(run, rounds)
    missing = left_out(run)
    factors = [str(one) for one in run.plan.get("variance", {}).get("factors", []) if one not in missing]
    rows: list[Row] = []
    for device, reference in measurands(run):
        values = values_of(rounds, beds, device, reference)
        found = [*nested_rows(values, beds), *factorial_rows(values, beds, factors)]
        for quantity, statistic, value, unit in found:
            rows.append(Row(device, quantity, statistic, value, unit, reference, run.cells[CELL], CELL))
            rows[-1].sessions = value.n
    stamp_sources(run, rows)
    samples = {"sessions": session_samples(run, rounds, beds), "session_machine": session_machine(run)}
    return Study(rows, list(tester_findings(run, visits=2)), sentence(run, rows, factors, missing), samples=samples)


def left_out(run: Run) -> dict[str, str]:
    """Return the factors that could not be switched on this machine, with the reason."""
    told = [event.get("left_out") or {} for event in run.log if event.get("event") == "bed"]
    return {str(name): str(why) for each in told for name, why in each.items()}


def measurands(run: Run) -> list[tuple[str, str | None]]:
    """Return the devices, each relative to every reference, the wire first; then the link without a device."""
    devices = [one for one in run.devices if one not in (DIRECT, WIRE)]
    over = [one for one in (WIRE, DIRECT) if one in run.devices]
    return [(device, reference) for device in devices for reference in over] + [(DIRECT, None)]


def beds_of(run: Run, rounds: Rounds) -> Beds:
    """Return the beds that have all their starts, each with the planned number of rounds."""
    started = [event for event in run.log if event.get("event") == "started" and {"bed", "part"} <= event.keys()]
    parts: dict[int, list[list[int]]] = defaultdict(list)
    held: dict[int, tuple[str, ...]] = {}
    on: dict[int, tuple[str, ...]] = {}
    for event in started:
        bed = int(event["bed"])
        draw = event.get("draw") or {}
        held[bed], on[bed] = tuple(draw.get("held", ())), tuple(draw.get("on", ()))
        here = np.flatnonzero(rounds.session == int(event["part"]))
        whole = [
            one for one in here.tolist() if not any(np.isnan(rounds.mean[path][CELL, one]) for path in run.devices)
        ]
        parts[bed].append(whole)
    starts = int(run.plan.get("variance", {}).get("starts", 1))
    repeats = int(run.plan.get("pairs", {}).get("rounds", 0)) // (run.sessions * starts)
    kept = [bed for bed, each in parts.items() if [len(one) for one in each] == [repeats] * starts]
    shape = (len(kept), starts, repeats)
    rounds_of_beds = np.array([parts[bed] for bed in kept], dtype=np.int64).reshape(shape)
    return Beds(rounds_of_beds, [held[bed] for bed in kept], [on[bed] for bed in kept])


def values_of(rounds: Rounds, beds: Beds, device: str, reference: str | None) -> NDArray[np.float64]:
    """Return the value of each round of each bed in ns: the round trip, or the one-way latency over a reference."""
    whole = rounds.median[device][CELL]
    median = whole if reference is None else (whole - rounds.median[reference][CELL]) / 2
    return np.asarray(median[beds.rounds], dtype=np.float64)


Found = list[tuple[str, str, Interval, str]]
"""Quantity, statistic, value and unit."""


def nested_rows(values: NDArray[np.float64], beds: Beds) -> Found:
    """Return the three components over beds on which all was redrawn."""
    free = values[beds.free()]
    if len(free) < 2:
        return []
    return [
        ("variance_component", name, deviation(one, len(free)), "ns")
        for name, one in zip(("bed", "start", "repeat"), nested(free, LEVEL), strict=True)
    ]


def factorial_rows(values: NDArray[np.float64], beds: Beds, factors: list[str]) -> Found:
    """Return the components of the variance of a bed's value, and the share of each factor."""
    by_row: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, held in enumerate(beds.held):
        by_row[tuple(sorted(held))].append(place)
    several = {held: places for held, places in by_row.items() if len(places) > 1}
    design = factorial(np.array([[one not in held for one in factors] for held in several], dtype=np.bool_))
    if not factors or design is None:
        return []
    means = np.median(values, axis=(1, 2))
    squares = np.array([means[places].var(ddof=1) for places in several.values()])
    inner = np.concatenate([means[places] - np.median(means[places]) for places in several.values()])
    degrees = np.array([len(places) - 1.0 for places in several.values()])
    n = sum(map(len, several.values()))
    # # Bonferroni: both ends of a ratio hold together if each part has half the error probability.
    strict = 1 - (1 - LEVEL) / 2
    whole, wide = (combine(squares, degrees, design.total, level) for level in (LEVEL, strict))
    found: Found = [("variance_component", "bed_value", deviation(whole, n), "ns")]
    for name, weights in zip(("rest", *factors), design.weights, strict=True):
        one, sure = (combine(squares, degrees, weights, level) for level in (LEVEL, strict))
        if name in factors:
            free = np.concatenate([np.full(len(places), name not in held) for held, places in several.items()])
            is_significant = spreads_more(inner, free) < SIGNIFICANT_P
        else:
            is_significant = True
        if not is_significant or one.low > whole.high:
            one, sure = (replace(each, low=np.minimum(each.low, 0.0)) for each in (one, sure))
        found.append(("variance_component", name, deviation(one, n), "ns"))
        found.append(("variance_share", name, share(one, whole, sure, wide, n), "1"))
    return found


def deviation(variance: Variance, n: int) -> Interval:
    """Return the standard deviation of a component; 0 for a negative variance, no interval if all of it is negative."""
    if variance.high < 0:
        return Interval(0.0, None, None, LEVEL, n)
    estimate, low, high = (
        float(np.sqrt(np.maximum(one, 0.0))) for one in (variance.estimate, variance.low, variance.high)
    )
    return Interval(estimate, low, high, LEVEL, n)


def share(one: Variance, whole: Variance, sure: Variance, wide: Variance, n: int) -> Interval:
    """Return a component's share of the whole, from 0 to 1; `sure` and `wide` are the same at a joint level."""
    if sure.high < 0:
        return Interval(0.0, None, None, LEVEL, n)
    low = _part(sure.low, wide.high) if wide.high > 0 else 0.0
    high = _part(sure.high, wide.low) if wide.low > 0 else 1.0
    return Interval(_part(one.estimate, whole.estimate), low, high, LEVEL, n)


def _part(some: NDArray[np.float64], of: NDArray[np.float64]) -> float:
    if some <= 0:
        return 0.0
    return float(np.clip(some / of, 0.0, 1.0)) if of > 0 else 1.0


def sentence(run: Run, rows: list[Row], factors: list[str], missing: dict[str, str]) -> str:
    """Return how far beds, starts and rounds differ, and the factors with and without a significant share."""
    first = next(iter(measurands(run)))
    own = {(row.quantity, row.statistic): row.value for row in rows if (row.device, row.reference) == first}
    if ("variance_component", "repeat") not in own:
        return "Too few whole beds for any component of variance"
    bed, start, repeat = (_sd(own["variance_component", name]) for name in ("bed", "start", "repeat"))
    what = "The median round trip" if first[1] is None else f"The median latency of {first[0]} over {first[1]}"
    told = [f"{what} differs by sd {bed} between beds, {start} between starts on one bed, {repeat} between rounds"]
    shares = {name: own["variance_share", name] for name in factors if ("variance_share", name) in own}
    carried = [name for name, value in shares.items() if (value.low or 0) > 0]
    told += [f"{name} causes {_share(shares[name])} of the variance between beds" for name in carried]
    unknown = [name for name in shares if name not in carried]
    if unknown:
        told.append(f"no significant share: {', '.join(unknown)}")
    told += [f"{name} is left out: {why}" for name, why in missing.items()]
    return "; ".join(told)


def _sd(value: Interval) -> str:
    low, high = (0.0 if end is None else end / 1000 for end in (value.low, value.high))
    places = decimals((high - low) / 2)
    return f"{fixed(value.estimate / 1000, places)} {US} ({fixed(low, places)}{DASH}{fixed(high, places)})"


def _share(value: Interval) -> str:
    return f"{percent(value.estimate)} ({percent(value.low or 0.0)}{DASH}{percent(value.high or 1.0)})"


SESSIONS = Sample(
    "The value of a measurand on a complete bed.",
    {
        "bed": (pl.Int64, "The number of the complete bed, from 0."),
        **shared("device reference"),
        "held": (pl.String, "The factors that were held."),
        "on": (pl.String, "The factors that were switched on."),
        "value_ns": (pl.Float64, "The value: the median of its rounds."),
    },
)
SAMPLES = {"sessions": SESSIONS, "session_machine": SESSION_MACHINE}


def session_samples(run: Run, rounds: Rounds, beds: Beds) -> pl.DataFrame:
    """Return the value of each measurand on each complete bed."""
    found = [
        (bed, device, reference, ", ".join(beds.held[bed]), ", ".join(beds.on[bed]), float(value))
        for device, reference in measurands(run)
        for bed, value in enumerate(np.median(values_of(rounds, beds, device, reference), axis=(1, 2)))
    ]
    return pl.DataFrame(found, schema=SESSIONS.own, orient="row")
