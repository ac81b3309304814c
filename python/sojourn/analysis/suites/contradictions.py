"""Contradictory search results: longer frames with a higher frame rate, a goal that allows loss with a lower rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.checks import ALARM
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.wording import percent
from sojourn.statistics.discovery import LEAST_VALUES, greater_p
from sojourn.statistics.permutation import holm

if TYPE_CHECKING:
    from sojourn.analysis.factors import Factors
    from sojourn.analysis.suites import Sought


def rises(sought: list[Sought], cells: dict[int, Factors]) -> list[Finding]:
    """Return frame rates that rise with the frame's size: longer frames are never less work.

    All pairs of sizes are tested together (Holm), each by Welch's test of the lower bounds of the longer frames against
    the upper bounds of the shorter ones, over repetitions. With fewer than three there is no level: non-overlapping
    bounds are a finding.
    """
    groups: dict[tuple[str, str, str | None], list[Sought]] = {}
    for one in sought:
        if len(one.lowers) and not one.is_tester_limited:
            groups.setdefault((one.quantity, one.device, cells[one.cell].engine), []).append(one)
    pairs = [
        (shorter, longer)
        for several in groups.values()
        for shorter in several
        for longer in several
        if (cells[shorter.cell].frame_bytes or 0) < (cells[longer.cell].frame_bytes or 0)
    ]
    found: dict[Place, float] = {}
    chances = holm([greater_p(longer.lowers, shorter.uppers) for shorter, longer in pairs])
    for (shorter, longer), chance in zip(pairs, chances, strict=True):
        is_few = min(len(longer.lowers), len(shorter.uppers)) < LEAST_VALUES
        if chance < ALARM or (is_few and longer.lowers.min() > shorter.uppers.max()):
            place = Place(longer.device, longer.cell)
            rise = float(longer.lowers.mean() / shorter.uppers.mean()) - 1
            found[place] = max(rise, found.get(place, 0.0))
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = (
        f"the frame rate of longer frames is {percent(worst)} higher than that of shorter ones: at least one of them "
        "is limited by something other than the device"
    )
    return [Finding("rate_rises_with_size", sentence, worst, places)]


def contradicted(sought: list[Sought]) -> list[Finding]:
    """Return rates of goals that allow a loss whose upper bound is below the rate of a stricter goal.

    Rates within each other's bounds do not contradict: a search does not distinguish them.
    """
    found: dict[Place, float] = {}
    groups: dict[tuple[bool, str, int, str], list[Sought]] = {}
    for one in sought:
        if len(one.lowers) and not one.is_tester_limited:
            is_broadcast = one.quantity.startswith("broadcast_")
            groups.setdefault((is_broadcast, one.device, one.cell, one.algorithm), []).append(one)
    for several in groups.values():
        stricter = 0.0
        for one in sorted(several, key=lambda one: one.goal):
            most = float(one.uppers.mean())
            if most < stricter:
                place = Place(one.device, one.cell)
                found[place] = max(1 - most / stricter, found.get(place, 0.0))
            stricter = max(stricter, one.rate().mean.estimate)
    if not found:
        return []
    places, worst = worst_first(found)
    sentence = (
        f"the upper bound of the rate that allows a loss is {percent(worst)} below the rate that allows less: the "
        "device or the machine changed between the trials, for what passes with less loss passes with more"
    )
    return [Finding("goals_contradict", sentence, worst, places)]
