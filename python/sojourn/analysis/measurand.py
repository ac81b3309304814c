"""The measurand of a run with a device: its latency over one reference, fixed by the plan, and its wording.

The reference is the device that the plan states; else the wire if measured, since that has as many links; else the
direct link. The cell is the plan's reference cell, the first value of each list: other cells are not averaged into it.
The module chooses and words; it computes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sojourn import devices
from sojourn.analysis.hypotheses import main_device
from sojourn.analysis.links.cables import cables_of
from sojourn.analysis.rows import over_beds
from sojourn.analysis.run import A_A, DIRECT, WIRE
from sojourn.analysis.verdict import amid, find
from sojourn.analysis.wording import DASH, HOLDS_ZERO, US, decimals, fixed, micro
from sojourn.devices import cables, called
from sojourn.statistics.homogeneity import homogeneity_p
from sojourn.statistics.sessions import LEAST_SESSIONS

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.statistics.interval import Interval

DISAGREE_P = 0.01


def reference_cell(run: Run) -> int | None:
    """Return the first combination of the plan's factors; None where it was not measured."""
    return 0 if 0 in run.cells else None


def reference_of(run: Run, device: str) -> str:
    """Return the path that the device is compared with in the headline."""
    if run.reference in run.devices and device != run.reference:
        return run.reference or DIRECT
    return WIRE if WIRE in run.devices and device != WIRE else DIRECT


def measurand(run: Run, rows: list[Row]) -> Row | None:
    """Return the row of the measurand; None without a device, or without a measurement in the reference cell."""
    device = main_device(run.devices)
    return None if device is None else row_at(rows, device, reference_of(run, device), "mean", reference_cell(run))


def measurand_of_streams(run: Run, rows: list[Row]) -> Row | None:
    """Return the same for streams with a wire: of all cells together where the reference cell has no figure.

    None without a wire: the figure over the direct link is of all cells together (`added_sentence`).
    """
    device = main_device(run.devices)
    if device is None or reference_of(run, device) != WIRE:
        return None
    return measurand(run, rows) or row_at(rows, device, WIRE, "pooled", None)


def row_at(
    rows: list[Row], device: str, reference: str, statistic: str, cell: int | None, quantity: str = "device_latency"
) -> Row | None:
    """Return the row of this device, reference, statistic and cell; None where there is none."""
    wanted = (device, reference, quantity, statistic, cell)
    return next(
        (row for row in rows if (row.device, row.reference, row.quantity, row.statistic, row.cell) == wanted), None
    )


def said_in_full(run: Run, rows: list[Row], row: Row) -> str:
    """ "The Linux bridge adds 0.26 us one way over the wire, ... (95 % CI 0.21-0.31 over 8 beds; ...)".

    Of an interval that holds zero: "No delay of the Linux bridge was found one way over the wire, ...: 0.03 us, ...".
    """
    if holds_zero(row.value):
        place = f"one way{_in_cell(run, row)}{over_reference(run, row)}"
        return f"{no_delay(subject(row), place)}: {figure(row.value)}, {HOLDS_ZERO} ({covers(rows, row)})"
    return f"{subject(row)} {adds(run, rows, row)}{over_reference(run, row)} ({covers(rows, row)})"


def holds_zero(value: Interval) -> bool:
    """Return whether there is an interval and zero lies within it."""
    return value.low is not None and value.high is not None and not value.excludes(0)


def no_delay(of: str, place: str) -> str:
    """Return the statement that no delay of a device was found in a place."""
    plain = f"the {of[4:]}" if of.startswith("The ") else of
    return f"No delay of {plain} was found {place}"


def subject(row: Row) -> str:
    """Return the subject: the device or, over the mode that it is a variant of, its addition to that."""
    known = devices.known(row.device)
    beyond = known.mode.beyond if known and row.reference == devices.variant_of(row.device) else ""
    return beyond or called(row.device)


def adds(run: Run, rows: list[Row], row: Row) -> str:
    """Return what the device adds, and in which cell if there are several."""
    value, of = row.value, _in_cell(run, row)
    if limit := _not_resolved(run, rows, row):
        return f"{limit} one way{of}, {figure(value)},"
    return f"adds {figure(value)} one way{of}"


def _not_resolved(run: Run, rows: list[Row], row: Row) -> str:
    """Return that the device adds less than can be resolved; empty where it adds more.

    The limit of a cell is its A/A control's if that is wider than the bed's resolution, which is named elsewhere.
    """
    bed, control = resolution_in(rows) or 0.0, control_in(rows, row)
    if abs(row.value.estimate) >= max(bed, control):
        return ""
    where = "in this cell " if len(run.cells) > 1 else ""
    return f"adds less than the bed can resolve{f' {where}({micro(control)})' if control > bed > 0 else ''}"


def _in_cell(run: Run, row: Row) -> str:
    """Return the cell of a figure, within a sentence; empty where the run has one."""
    where = "all cells together" if row.cell is None else row.factors.describe()
    return f" ({where})" if len(run.cells) > 1 else ""


def figure(value: Interval) -> str:
    """Return an estimate in µs, with as many decimals as its interval has."""
    return f"{fixed(value.estimate / 1000, places(value))} {US}"


def places(value: Interval) -> int:
    """Return the number of decimals of a µs that the interval has."""
    return decimals((value.half_width or abs(value.estimate)) / 1000)


def span(value: Interval) -> str:
    """Return the interval in µs without its unit: "0.21-0.31"."""
    if value.low is None or value.high is None:
        return "no interval"
    low, high = fixed(value.low / 1000, places(value)), fixed(value.high / 1000, places(value))
    return f"{low}{f' to {high}' if value.low < 0 else f'{DASH}{high}'}"


def over_reference(run: Run, row: Row) -> str:
    """Return the reference, with both numbers of links where they differ; a simulated path has none."""
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


def covers(rows: list[Row], row: Row) -> str:
    """Return the interval, the number of beds, and the interval within one."""
    if row.value.low is None:
        few = row.sessions is not None and row.sessions < LEAST_SESSIONS
        return "too few beds for an interval" if few else "too few pairs for an interval"
    told = f"95 % CI {span(row.value)}"
    if row.sessions is None:
        return f"{told} within one bed"
    within = row_at(rows, row.device, row.reference or DIRECT, "within_bed", row.cell)
    width = None if within is None else within.value.half_width
    beside = "" if width is None else f"; within one bed ± {fixed(width / 1000, places(row.value))}"
    return f"{told} over {row.sessions} beds{beside}"


def beside_direct(rows: list[Row], row: Row) -> list[str]:
    """Return the same figure over the direct link, where the headline has another reference."""
    direct = row_at(rows, row.device, DIRECT, row.statistic, row.cell) if row.reference != DIRECT else None
    whole = f"{amid(row.device)} adds " if row.reference not in (DIRECT, WIRE) else ""
    said = "" if direct is None else f"{whole}{figure(direct.value)} ({span(direct.value)})"
    return [f"over the direct link, {said}"] if said else []


def other_cells(rows: list[Row], row: Row) -> list[str]:
    """Return the range over cells, where they differ by more than their intervals."""
    several = range_of_cells(rows, row.device, row.reference or DIRECT)
    return [f"it is {several}"] if several else []


def range_of_cells(rows: list[Row], device: str, reference: str) -> str:
    """Return the range over cells where one number would be true of none; empty where they agree.

    They disagree where Cochran's Q rejects at 1 % that all cells have one latency. An error of the clocks is common to
    all of them, so it is left out.
    """
    cells = [row for row in rows if (row.device, row.quantity, row.statistic) == (device, "device_latency", "mean")]
    cells = [row for row in cells if row.reference == reference and (row.sampled.half_width or 0) > 0]
    values = np.array([row.value.estimate for row in cells])
    if len(cells) < 2 or homogeneity_p(values, np.array([row.sampled.half_width for row in cells])) > DISAGREE_P:
        return ""
    least, most = cells[int(values.argmin())], cells[int(values.argmax())]
    places = decimals(min(row.value.half_width or 0 for row in cells) / 1000)
    low, high = (fixed(row.value.estimate / 1000, places) for row in (least, most))
    where = f"{least.factors.describe()} and {most.factors.describe()}"
    return f"{low} to {high} {US} one way, depending on the cell ({where})"


def what_bed_resolves(rows: list[Row]) -> str:
    """Return the bed's resolution by the A/A control, in words."""
    bed = resolution_in(rows)
    return "what the bed can resolve is not known" if bed is None else f"the bed can resolve {micro(bed)}"


def resolution_in(rows: list[Row]) -> float | None:
    """Return the bed's resolution, in ns; None without an A/A control."""
    return next((row.value.estimate for row in rows if row.quantity == "resolution"), None)


def control_in(rows: list[Row], row: Row) -> float:
    """Return the largest difference that the A/A control of the same cell leaves possible; 0 without an interval.

    Of all cells together it is the bed's resolution or, if unknown, the largest of any cell.
    """
    if row.cell is None and (bed := resolution_in(rows)) is not None:
        return bed
    controls = [one for one in rows if _is_control(one) and row.cell in (one.cell, None)]
    return max((abs(end or 0.0) for one in controls for end in (one.value.low, one.value.high)), default=0.0)


def _is_control(row: Row) -> bool:
    return (row.device, row.reference, row.quantity, row.statistic) == (A_A, DIRECT, "device_latency", "mean")


def added_sentence(run: Run, rows: list[Row]) -> str:
    """Return what the device adds by streams: over the wire with the direct link beside it, or over the direct link.

    Without a device, return the one-way delay itself.
    """
    if (head := measurand_of_streams(run, rows)) is not None:
        beside = [*beside_direct(rows, head), what_bed_resolves(rows), not_covered(head.sessions)]
        return "; ".join([*_over_wire(run, rows, head), *beside])
    device = main_device(run.devices)
    pooled = find(rows, device, "device_latency", "pooled")
    if device is None or pooled is None:
        least = [row for row in rows if row.quantity == "one_way_delay" and row.statistic == "p50"]
        said = (
            f"the least of its medians is {micro(min(row.value.estimate for row in least))}" if least else "it has none"
        )
        return f"No device was measured against the direct link; of one-way delays, {said}"
    return f"{_over_direct(run, rows, pooled)}; {not_covered(pooled.sessions)}"


def _over_wire(run: Run, rows: list[Row], head: Row) -> list[str]:
    """Return the headline and the range of the other cells; the range alone where cells differ and none leads."""
    if head.cell is not None:
        return [said_in_full(run, rows, head), *other_cells(rows, head)]
    several = range_of_cells(rows, head.device, WIRE)
    return [f"{subject(head)} adds {several}{over_reference(run, head)}" if several else said_in_full(run, rows, head)]


def _over_direct(run: Run, rows: list[Row], pooled: Row) -> str:
    """Return what is added over the direct link: the range of the cells where they differ, else all of them
    together."""
    name = called(pooled.device)
    if several := range_of_cells(rows, pooled.device, DIRECT):
        return f"{name} adds {several}{_links_included(run, pooled)}"
    if holds_zero(pooled.value):
        return f"{no_delay(name, 'over the direct link')}: {_one_way(pooled)}, {HOLDS_ZERO}"
    if limit := _not_resolved(run, rows, pooled):
        return f"{name} {limit}: {_one_way(pooled)}; {what_bed_resolves(rows)}"
    return f"{name} adds {_one_way(pooled)}{_links_included(run, pooled)}"


def not_covered(sessions: int | None, also: str = "") -> str:
    """Return what the interval does not cover of another run's conditions."""
    beds = "" if sessions is not None else "another bed, "
    return f"{beds}reboots{f', other days, and {also}' if also else ' and other days'} are not covered"


def _links_included(run: Run, pooled: Row) -> str:
    """Return a note that the figure over the direct link includes the path's further links, where no wire was
    measured."""
    device = str(pooled.device)
    if run.simulated or device == WIRE or WIRE in run.devices:
        return ""
    rated = cables_of(run).get(device)
    slowest = "" if rated is None else f", the slowest at {min(rated.known) / 1e6:g} Mbit/s"
    return f"; this includes the further veth links of its path{slowest} (no wire was measured)"


def _one_way(row: Row) -> str:
    """Return a figure with its interval, and the number of beds."""
    value, beds = row.value, over_beds(row)
    places = decimals((value.half_width or abs(value.estimate)) / 1000)
    said = f"{fixed(value.estimate / 1000, places)} {US} one way"
    if value.low is None or value.high is None:
        return f"{said} ({'too few beds' if beds else 'too few pairs'} for an interval)"
    low, high = fixed(value.low / 1000, places), fixed(value.high / 1000, places)
    return f"{said} (95 % CI {low}{f' to {high}' if value.low < 0 else f'{DASH}{high}'}{beds})"
