"""What flows with round trips of their own get of the queue and link that they share, by round trip.

A group is the flows of one algorithm that the plan gave one round trip. Shares are of the goodput of all flows of a
direction. How goodput falls with the round trip R is k in R^-k: the slope, in logarithms, of the groups' mean goodputs
of a flow. It is given twice: for the planned round trips of the path without its queue, and for those under working
conditions, by TCP's smoothed round trips, in which the queue's delay makes groups more alike.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.rates import jain
from sojourn.analysis.rows import LoadSetting, over_beds
from sojourn.analysis.tcp_trials import told_by
from sojourn.analysis.wording import DASH, fixed, percent
from sojourn.methods.tcp_load.analyse.naming import short_names
from sojourn.methods.tcp_load.analyse.queues import WAYS
from sojourn.methods.tcp_load.analyse.shares import TURNS
from sojourn.methods.tcp_load.analyse.trials import Span, changes, of_flows, parts_of
from sojourn.units import as_duration, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.methods.tcp_load.analyse.trials import Done

UNITS = {
    "share_by_rtt": "1", "goodput_by_rtt": "bit/s", "fairness_by_rtt": "1", "retransmitted_by_rtt": "1",
    "tcp_rtt": "ns", "rtt_exponent": "1",
}  # fmt: skip
PLANNED, WORKING, LEAST = "planned", "working", "minimum"
APART = 0.1
"""A least round trip that differs from the planned one by more than this part of it is another one."""

LEAST_RATIO = 1.2
"""Of the longest round trip over the shortest: with less, a power of them is that of their noise."""

LEAST_APART_NS = 1e6
"""... and by this at least: an emulator on a busy machine is late by as much."""

Values = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Group:
    """The flows of one direction and algorithm that have one round trip."""

    name: str
    """As statistics have it behind the direction: "80ms"; with the algorithm's turn where several share a path."""
    place: int
    """Which of the plan's round trips it is."""
    turn: int
    planned_ns: float
    local: frozenset[str]
    """The flows' own ends."""


def spans(mix: str) -> list[int]:
    """The round trips of a mix as plans write it, in ns."""
    return [int(nanoseconds(one) or 0) for one in mix.split("+")]


def name_of(place: int, planned: Sequence[int]) -> str:
    """A round trip's name among those of its mix: "80ms"; of equal ones the place besides."""
    said = as_duration(planned[place])
    return said if planned.count(planned[place]) == 1 else f"{said} no. {place + 1}"


def groups_of(entry: dict[str, Any], way: str) -> list[Group]:
    """The groups of a direction of a trial; none where all flows have the pipe's round trip."""
    flows: dict[tuple[int, int], set[str]] = defaultdict(set)
    for flow in entry["flows"]:
        if flow["direction"] == way and "group" in flow:
            flows[int(flow.get("turn", 0)), int(flow["group"])].add(str(flow["local"]))
    planned = spans(str(entry["factors"].get("round_trips"))) if flows else []
    several = len({turn for turn, _ in flows}) > 1
    return [
        Group(f"{TURNS[turn]} {name_of(place, planned)}" if several else name_of(place, planned), place, turn,
              planned[place], frozenset(local))
        for (turn, place), local in sorted(flows.items())
        if place < len(planned)
    ]  # fmt: skip


def add(run: Run, several: Iterable[Done]) -> None:
    """Give each trial the figures of its groups."""
    told, parts = told_by(run, "measure"), parts_of(run)
    grouped = {block: entry for block, entry in told.items() if any(groups_of(entry, way) for way in WAYS)}
    if not grouped:
        return
    sent = run.table("tcp_readings").frame.filter(pl.col("role") == "send", pl.col("block").is_in(list(grouped)))
    sent = sent.filter(pl.col("part") == pl.col("part").max().over("block"))
    readings = {int(block): frame for (block,), frame in sent.partition_by("block", as_dict=True).items()}
    for one in several:
        if one.block in grouped:
            working = Span(one.joined_ns + parts[0], one.joined_ns + sum(parts))
            for way in WAYS:
                one.values.update(by_group(groups_of(grouped[one.block], way), readings[one.block], working, way))


def by_group(groups: Sequence[Group], readings: pl.DataFrame, working: Span, way: str) -> Values:
    """Every figure of the groups; nothing where a flow was read less than twice: every share would be too large."""
    found: Values = {}
    own = {group.name: of_flows(readings, set(group.local)) for group in groups}
    for group in groups:
        each = own[group.name].filter(working.holds("read_after_ns")).sort("read_after_ns").partition_by("local")
        flows = [change for flow in each if (change := changes(flow)) is not None]
        if len(flows) < len(group.local):
            return {}
        key, rates = f"{way} {group.name}", np.array([flow.goodput_bps for flow in flows])
        found["goodput_by_rtt", key] = float(rates.mean())
        found["share_by_rtt", key] = float(rates.sum())
        if len(flows) > 1:
            found["fairness_by_rtt", key] = jain(rates)
        if segments := sum(flow.segments for flow in flows):
            found["retransmitted_by_rtt", key] = sum(flow.again for flow in flows) / segments
        least = own[group.name]["rtt_min_us"].drop_nulls().to_numpy()
        if len(least):
            found["tcp_rtt", f"{key} {LEAST}"] = 1e3 * float(least.min())
        smoothed = [flow["srtt_us"].drop_nulls().to_numpy() for flow in each]
        if all(len(one) for one in smoothed):
            found["tcp_rtt", f"{key} {WORKING}"] = 1e3 * float(np.mean([one.mean() for one in smoothed]))
    total = sum(value for (quantity, _), value in found.items() if quantity == "share_by_rtt")
    shares = {key: value / total for key, value in found.items() if key[0] == "share_by_rtt" and total}
    rest = {key: value for key, value in found.items() if key[0] != "share_by_rtt"}
    return shares | rest | exponents(groups, rest, way)


def exponents(groups: Sequence[Group], values: Values, way: str) -> Values:
    """How each algorithm's goodput falls with the planned round trip, and with that under working conditions."""
    found: Values = {}
    turns = sorted({group.turn for group in groups})
    for turn in turns:
        own = [group for group in groups if group.turn == turn]
        if len({group.planned_ns for group in own}) < 2:
            continue
        rates = [values["goodput_by_rtt", f"{way} {group.name}"] for group in own]
        working = [values.get(("tcp_rtt", f"{way} {group.name} {WORKING}"), math.nan) for group in own]
        for said, times in ((PLANNED, [group.planned_ns for group in own]), (WORKING, working)):
            if (power := power_of(times, rates)) is not None:
                found["rtt_exponent", f"{way} {f'{TURNS[turn]} ' if len(turns) > 1 else ''}{said}"] = power
    return found


def power_of(times: Sequence[float], rates: Sequence[float]) -> float | None:
    """The k of rates that go as time^-k, by least squares in logarithms; None where one is zero, or times are alike."""
    if not all(value > 0 for value in (*times, *rates)) or max(times) < LEAST_RATIO * min(times):
        return None  # not a number is not above zero
    x, y = np.log(times), np.log(rates)
    away = x - x.mean()
    return -float((away * y).sum() / (away * away).sum())


def findings(run: Run, several: Iterable[Done]) -> Iterator[Finding]:
    """Groups whose least round trip, in the median over trials, is not the one that they were to have."""
    told = told_by(run, "measure")
    found: dict[tuple[Place, str, int], list[float]] = defaultdict(list)
    for one in several:
        for way in WAYS:
            groups = groups_of(told[one.block], way)
            for which in sorted({group.place for group in groups}):
                own = [group for group in groups if group.place == which]
                least = [one.values.get(("tcp_rtt", f"{way} {group.name} {LEAST}"), math.nan) for group in own]
                # Flows that join others find a queue: the first of them did not.
                if not all(map(math.isnan, least)):
                    found[Place(one.device, one.cell), way, int(own[0].planned_ns)].append(float(np.nanmin(least)))
    apart: dict[Place, float] = {}
    said: dict[Place, str] = {}
    for (place, way, planned), values in found.items():
        median = float(np.median(values))
        off = abs(median - planned) / planned
        if abs(median - planned) > max(APART * planned, LEAST_APART_NS) and off > apart.get(place, 0.0):
            apart[place] = off
            said[place] = (
                f"the least round trip of flows {way} that were to have {as_duration(planned)} is "
                f"{fixed(median / 1e6, 1)} ms by their TCP"
            )
    if apart:
        worst, off = worst_first(apart)
        yield Finding("round_trip_differs", said[worst[0]], off, worst)


def head(rows: Iterable[Row]) -> Row | None:
    """The share of the longest round trip, in the first cell whose flows have several."""
    return next((row for row in rows if row.quantity == "share_by_rtt" and is_longest(row)), None)


def is_longest(row: Row) -> bool:
    """Whether a share is that of the longest of several round trips, and of the first algorithm where some share."""
    own = row.setting
    planned = spans(own.round_trips) if isinstance(own, LoadSetting) and own.round_trips else []
    name = row.statistic.partition(" ")[2].removeprefix(f"{TURNS[0]} ")
    return len(set(planned)) > 1 and name == name_of(planned.index(max(planned)), planned)


def sentence(rows: Sequence[Row], row: Row, flows: str) -> str:
    """The share of the longest round trip, through each queue under the same load, and how goodput falls with it."""
    own = row.setting
    assert isinstance(own, LoadSetting)
    assert own.round_trips is not None
    like = [one for one in rows if (one.device, one.quantity, one.statistic, one.setting)
            == (row.device, row.quantity, row.statistic, own)]  # fmt: skip
    said = f"Of {flows}, those with {as_duration(max(spans(own.round_trips)))} get"
    powers = [power_beside(rows, one) for one in like]
    if len(like) == 1:
        law = f", which goes as {powers[0]} with the round trip R under load" if powers[0] else ""
        return f"{said} {share_said(row)} of the goodput{law}"
    names = short_names([str(one.factors.pipe) for one in like])
    each = (f"{share_said(one)}{f', {power},' if power else ''} with {names[str(one.factors.pipe)]}"
            for one, power in zip(like, powers, strict=True))  # fmt: skip
    law = ", which goes as this power of the round trip R under load" if any(powers) else ""
    return f"{said} this share of the goodput{law}: {'; '.join(each)}"


def power_beside(rows: Iterable[Row], row: Row) -> str:
    """The power of the round trip under load by which goodput goes in the cell of a share: "R^-1.3"; empty: unknown."""
    way, first = row.statistic.split()[:2]
    wanted = f"{way} {TURNS[0]} {WORKING}" if first == TURNS[0] else f"{way} {WORKING}"
    key = (row.device, row.cell, "rtt_exponent", wanted)
    value = next((one.value for one in rows if (one.device, one.cell, one.quantity, one.statistic) == key), None)
    return "" if value is None else f"R^{fixed(-value.estimate, 2)}"


def share_said(row: Row) -> str:
    """A share with its interval, to two digits of the interval's half."""
    value, half = row.value, row.value.half_width
    if value.low is None or value.high is None or half is None:
        return f"{percent(value.estimate)}{over_beds(row)}"
    places = max(0, min(3, 1 - math.floor(math.log10(max(100 * half, 1e-3)))))
    said, low, high = (fixed(100 * one, places) for one in (value.estimate, value.low, value.high))
    return f"{said} % (95 % CI {low}{DASH}{high} %{over_beds(row)})"
