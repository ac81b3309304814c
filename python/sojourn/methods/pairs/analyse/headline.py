"""The sentence of a run of pairs: one measurand, fixed by the plan, and what its interval covers.

The measurand is the latency of the device at the plan's reference cell, the first value of each list: over the device
that the plan states as reference; else over the wire where one was measured, since that has as many links; else over
the direct link. Other cells are never averaged into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.run import A_A, DIRECT, WIRE
from sojourn.analysis.sizes import lies_on_line
from sojourn.analysis.verdict import amid, range_of_cells
from sojourn.analysis.wording import DASH, US, decimals, fixed, micro
from sojourn.devices import cables, called
from sojourn.statistics.sessions import LEAST_SESSIONS

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval


def reference_cell(run: Run) -> int | None:
    """The first combination of the plan's factors; None where it was not measured."""
    return 0 if 0 in run.cells else None


def headline(run: Run, rows: list[Row]) -> Row | None:
    """The row of the measurand; None where no device was measured."""
    device = main_device(run.devices)
    over = WIRE if WIRE in run.devices and device != WIRE else DIRECT
    if run.reference in run.devices and device != run.reference:
        over = run.reference or over
    return None if device is None else _at(rows, device, over, "mean", reference_cell(run))


def latency_sentence(run: Run, rows: list[Row]) -> str:
    """ "At 64 B, the Linux bridge adds 0.26 us one way over the wire (95 % CI 0.21-0.31 over 8 beds; ...); ..."."""
    row = headline(run, rows)
    if row is None:
        missing = run.cells and reference_cell(run) is None
        return "The plan's first cell was not measured" if missing else "No device was measured against the direct link"
    bed = _resolution(rows)
    said = f"{_subject(row)} {_adds(run, row, max(bed or 0.0, _control(rows, row)))}"
    parts = [
        f"{said}{_reference(run, row)} ({_covers(rows, row)})",
        *_other_cells(rows, row),
        *_others(run, rows, row),
        *_beside(rows, row),
        *_bridge(rows, row),
        *_per_byte(run, rows, row, bed or 0.0),
        "what the bed can resolve is not known" if bed is None else f"the bed can resolve {micro(bed)}",
        _not_covered(rows, row),
    ]
    return "; ".join(parts)


def _at(
    rows: list[Row], device: str, reference: str, statistic: str, cell: int | None, quantity: str = "device_latency"
) -> Row | None:
    wanted = (device, reference, quantity, statistic, cell)
    return next(
        (row for row in rows if (row.device, row.reference, row.quantity, row.statistic, row.cell) == wanted), None
    )


def _control(rows: list[Row], row: Row) -> float:
    """What the A/A control of the same cell leaves possible; 0 where it has no interval."""
    own = _at(rows, A_A, DIRECT, "mean", row.cell)
    ends = () if own is None else (own.value.low or 0.0, own.value.high or 0.0)
    return max(map(abs, ends), default=0.0)


def _subject(row: Row) -> str:
    """The device; over the mode whose variant it is, what it has beyond that."""
    known = devices.known(row.device)
    beyond = known.mode.beyond if known and row.reference == devices.variant_of(row.device) else ""
    return beyond or called(row.device)


def _others(run: Run, rows: list[Row], row: Row) -> list[str]:
    """What the other devices add over a reference that the plan states, in the same cell."""
    if row.reference in (DIRECT, WIRE):
        return []
    found = (_at(rows, one, row.reference or DIRECT, "mean", row.cell) for one in run.devices if one != row.device)
    told = [(_subject(one), f"{_figure(one.value)} ({_range(one.value)})") for one in found if one]
    return [f"{subject[0].lower()}{subject[1:]} adds {figure}" for subject, figure in told]


def _adds(run: Run, row: Row, bed: float) -> str:
    """What it adds, and in which cell where there are several."""
    value, of = row.value, f" ({row.factors.describe()})" if len(run.cells) > 1 else ""
    if value.low is not None and not value.excludes(0):
        return f"adds nothing significantly different from zero one way{of}, {_figure(value)},"
    if abs(value.estimate) < bed:
        return f"adds less than the bed can resolve one way{of}, {_figure(value)},"
    return f"adds {_figure(value)} one way{of}"


def _figure(value: Interval) -> str:
    return f"{fixed(value.estimate / 1000, _places(value))} {US}"


def _places(value: Interval) -> int:
    return decimals((value.half_width or abs(value.estimate)) / 1000)


def _range(value: Interval) -> str:
    places = _places(value)
    if value.low is None or value.high is None:
        return "no interval"
    low, high = fixed(value.low / 1000, places), fixed(value.high / 1000, places)
    return f"{low}{f' to {high}' if value.low < 0 else f'{DASH}{high}'}"


def _not_covered(rows: list[Row], row: Row) -> str:
    """What another run could find beyond the interval; a direction by itself, where the records do not tell it."""
    beds = "" if row.sessions is not None else "another bed, "
    if _at(rows, row.device, row.reference or DIRECT, "mean", row.cell, "latency_asymmetry") is None:
        return f"{beds}reboots, other days, and request or reply by itself are not covered"
    return f"{beds}reboots and other days are not covered"


def _reference(run: Run, row: Row) -> str:
    """What it is over, with both numbers of links where they differ; a simulated path has none."""
    if row.reference not in (DIRECT, WIRE):
        return f" to {amid(str(row.reference))}"
    if row.reference != WIRE:
        return " over the direct link" + ("" if run.simulated else ", further links of its path included")
    if run.simulated:
        return " over the wire"
    rated = cables_of(run)
    if row.device in rated and WIRE not in rated:
        return " over the wire, whose links have no rate where the device's have"
    links, of_wire = cables(row.device), cables(WIRE)
    same = f"a path of as many links ({links}) joined by a redirect"
    return f" over the wire, {same if links == of_wire else f'which has {of_wire} links where the device has {links}'}"


def _covers(rows: list[Row], row: Row) -> str:
    """The interval, over how many beds, and what it is within one."""
    if row.value.low is None:
        few = row.sessions is not None and row.sessions < LEAST_SESSIONS
        return "too few beds for an interval" if few else "too few pairs for an interval"
    told = f"95 % CI {_range(row.value)}"
    if row.sessions is None:
        return f"{told} within one bed"
    within = _at(rows, row.device, row.reference or DIRECT, "within_bed", row.cell)
    width = None if within is None else within.value.half_width
    beside = "" if width is None else f"; within one bed ± {fixed(width / 1000, _places(row.value))}"
    return f"{told} over {row.sessions} beds{beside}"


def _other_cells(rows: list[Row], row: Row) -> list[str]:
    """The range over cells, where they differ by more than their intervals."""
    several = range_of_cells(rows, row.device, row.reference or DIRECT)
    return [f"it is {several}"] if several else []


def _beside(rows: list[Row], row: Row) -> list[str]:
    """The same over the direct link, where the headline is over another path."""
    direct = _at(rows, row.device, DIRECT, "mean", row.cell) if row.reference != DIRECT else None
    whole = f"{amid(row.device)} adds " if row.reference not in (DIRECT, WIRE) else ""
    said = "" if direct is None else f"{whole}{_figure(direct.value)} ({_range(direct.value)})"
    return [f"over the direct link, {said}"] if said else []


def _bridge(rows: list[Row], row: Row) -> list[str]:
    """The Linux bridge's over the same reference, where another device is the subject."""
    beside = row.device != "bridge" and row.reference in (DIRECT, WIRE)
    bridge = _at(rows, "bridge", row.reference or DIRECT, "mean", row.cell) if beside else None
    over = "wire" if row.reference == WIRE else "direct link"
    said = "" if bridge is None else f"{_figure(bridge.value)} ({_range(bridge.value)})"
    return [f"over the {over}, the Linux bridge adds {said}"] if said else []


def _per_byte(run: Run, rows: list[Row], row: Row, bed: float) -> list[str]:
    """The cost per byte over the same reference, where it is not zero and the bed resolves it; a line a probe."""
    kind = (row.device, row.reference, "latency_slope")
    slopes = [one for one in rows if (one.device, one.reference, one.quantity) == kind]
    told = []
    for one in slopes:
        if one.value.excludes(0) and _span(run, one) * abs(one.value.estimate) > bed:
            places = decimals(one.value.half_width or abs(one.value.estimate))
            low, high = (fixed(end or 0, places) for end in (one.value.low, one.value.high))
            by = f" by {one.factors.probe}" if len(slopes) > 1 else ""
            told.append(f"{fixed(one.value.estimate, places)} ns for each byte more{by} ({low} to {high})")
    return told


def _span(run: Run, slope: Row) -> float:
    """How many bytes lie between the shortest and the longest frame of a fit."""
    probe = str(slope.factors.probe)
    sizes = [factors.mean_frame_bytes for cell, factors in run.cells.items() if lies_on_line(run, cell, probe)]
    return max(sizes) - min(sizes)


def _resolution(rows: list[Row]) -> float | None:
    return next((row.value.estimate for row in rows if row.quantity == "resolution"), None)
