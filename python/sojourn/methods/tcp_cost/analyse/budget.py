"""The uncertainty budgets of the cost of the log of TCP's state: relative throughput, and time for each packet.

The throughput is the geometric mean, over numbers of flows, of the ratio of throughput with the most detail logged to
that without the log; its components are those of the logarithm of each ratio. The time is that of the log's programs
minus that of null programs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sojourn.analysis.budget import BOOTS, OTHER_DAYS, Entry, Stated, clock_rate, counted, required, scatter, unknown
from sojourn.analysis.run import DIRECT
from sojourn.analysis.wording import percent
from sojourn.methods.tcp_cost.analyse.judged import PATHS, alone, beds_of, combined, most_detailed
from sojourn.methods.tcp_cost.analyse.programs import spent
from sojourn.methods.tcp_cost.analyse.ratios import cells_of
from sojourn.methods.tcp_cost.analyse.rows import program_row, ratio_row
from sojourn.methods.tcp_cost.analyse.seen import seen_of
from sojourn.statistics.budget import Component
from sojourn.statistics.interval import student_quantile

if TYPE_CHECKING:
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run
    from sojourn.analysis.study import Study
    from sojourn.methods.tcp_cost.analyse.ratios import Cell
    from sojourn.statistics.interval import Interval

ANOTHER_BED = "another bed"
UNCOVERED = (OTHER_DAYS, ANOTHER_BED)
PARTS = "the intervals of its cells, added in squares"
ONE_BED = unknown("between beds", "the run has one bed")


def budgets(run: Run, study: Study) -> list[Stated]:
    """Return the relative throughput of each kind of packet, and the time per packet of each direction."""
    seen = seen_of(run)
    detail = most_detailed(cells_of(seen))
    link = _link(study.rows)
    paths = {cell.path: 0 for cell in detail}
    found = [_throughput([cell for cell in detail if cell.path == path], path, link) for path in paths]
    logged = [one for one in spent(seen) if one.path is None and one.what == "logged"]
    return [*found, *(_time(program_row(one), one.transfers) for one in logged)]


def _link(rows: list[Row]) -> Entry:
    """Return the entry for differences between direct links: both slices of a pair use the same link."""
    found = next((one for one in rows if (one.device, one.quantity) == (DIRECT, "between_instances")), None)
    seen = "" if found is None else f"; without the log, links differ by sd {percent(found.value.estimate)}"
    return Entry("instance of the link", "cancels", f"both slices of a pair are over one link{seen}")


def _throughput(cells: list[Cell], path: str, link: Entry) -> Stated:
    """Return the budget of the mean of the logarithms: the sensitivity to each cell is ratio / number of cells."""
    whole = combined([alone(cell) for cell in cells])
    assert whole is not None, "there is a cell"
    row = ratio_row(cells[0], whole)
    row.sessions = beds_of(cells)
    if row.sessions is None:
        entries = [*(_pairs(cell, whole.estimate / len(cells)) for cell in cells), ONE_BED]
    else:
        entries = [_beds(whole, row.sessions)]
    control = Entry("difference of slices without the log", "outside", "the A/A control tests it; it is not subtracted")
    idle = Entry("idle process of the log", "cancels", "it runs during both slices of a pair")
    drift = Entry(
        "drift within a pair", "contained", "the order is random and then reversed: part of the scatter of pairs"
    )
    placebo = Entry(
        "calibration of the placebo",
        "outside",
        "one measurement of 0.1 s sets the length of its loop; this affects the placebo alone",
    )
    name = f"Throughput with the log over without, {PATHS.get(path, path)}"
    uncovered, of = (UNCOVERED, PARTS) if row.sessions is None else (UNCOVERED[:1], "the scatter between beds")
    return Stated(name, row, (*entries, drift, link, idle, control, placebo, BOOTS), uncovered, of)


def _beds(whole: Interval, beds: int) -> Entry:
    """Return the scatter between beds of the mean logarithm over all numbers of flows."""
    name, low, high = "scatter between beds", whole.low, whole.high
    if low is None or high is None or low <= 0 or not high > low:
        return required(name, f"{beds} beds: too few for an interval")
    u = math.log(high / low) / 2 / student_quantile(beds - 1, whole.level)
    component = Component(name, "A", u, "1", "student-t", whole.estimate, beds - 1)
    return counted(component, f"mean logarithms of the ratios on {beds} beds, each made anew")


def _pairs(cell: Cell, sensitivity: float) -> Entry:
    """Return the scatter of the logarithms of a cell's pairs: half the interval over Student's quantile."""
    name = f"scatter of pairs, {cell.flows} flow{'' if cell.flows == 1 else 's'}"
    low, high, n = cell.ratio.low, cell.ratio.high, cell.ratio.n
    if low is None or high is None or low <= 0 or not high > low:
        return required(name, f"{n} pairs: too few for an interval")
    u = math.log(high / low) / 2 / student_quantile(n - 1, cell.ratio.level)
    component = Component(name, "A", u, "1", "student-t", sensitivity, n - 1)
    return counted(component, f"logarithms of the ratios of {n} pairs of slices")


def _time(row: Row, transfers: int) -> Stated:
    """Return the budget of the time in the log's program for each packet of a direction."""
    of_beds = row.sessions is not None
    what = "beds, each made anew" if of_beds else "transfers, each with programs loaded anew"
    entries = (
        scatter(f"scatter between {'beds' if of_beds else 'transfers'}", row, transfers, f"{transfers} {what}"),
        Entry("clock of the kernel's statistics", "cancels", "the null programs of the same turn include it as well"),
        clock_rate(row.value.estimate),
        *(() if of_beds else (ONE_BED,)),
        BOOTS,
    )
    way = {"in": "received", "out": "sent"}.get(row.statistic, row.statistic)
    return Stated(f"Time of the log for each {way} packet", row, entries, UNCOVERED[:1] if of_beds else UNCOVERED)
