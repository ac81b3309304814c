"""The sentence of a run of pairs: the measurand (`analysis.measurand`), further figures, and what is not covered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.measurand import (
    beside_direct,
    figure,
    measurand,
    not_covered,
    other_cells,
    reference_cell,
    resolution_in,
    row_at,
    said_in_full,
    span,
    subject,
    what_bed_resolves,
)
from sojourn.analysis.run import DIRECT, WIRE
from sojourn.analysis.sizes import lies_on_line
from sojourn.analysis.wording import decimals, fixed

if TYPE_CHECKING:
    from sojourn.analysis.finding import Finding
    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run


def latency_sentence(run: Run, rows: list[Row], findings: list[Finding]) -> str:
    """ "At 64 B, the Linux bridge adds 0.26 us one way over the wire (95 % CI 0.21-0.31 over 8 beds; ...); ..."."""
    row = measurand(run, rows)
    if row is None:
        missing = run.cells and reference_cell(run) is None
        return "The plan's first cell was not measured" if missing else "No device was measured against the direct link"
    parts = [
        said_in_full(run, rows, row),
        *other_cells(rows, row),
        *_others(run, rows, row),
        *beside_direct(rows, row),
        *_directions(rows, row, findings),
        *_bridge(rows, row),
        *_per_byte(run, rows, row, resolution_in(rows) or 0.0),
        what_bed_resolves(rows),
        _not_covered(rows, row),
    ]
    return "; ".join(parts)


def _others(run: Run, rows: list[Row], row: Row) -> list[str]:
    """Return what the other devices add over a reference that the plan states, in the same cell."""
    if row.reference in (DIRECT, WIRE):
        return []
    found = (row_at(rows, one, row.reference or DIRECT, "mean", row.cell) for one in run.devices if one != row.device)
    told = [(subject(one), f"{figure(one.value)} ({span(one.value)})") for one in found if one]
    return [f"{name[0].lower()}{name[1:]} adds {value}" for name, value in told]


def _not_covered(rows: list[Row], row: Row) -> str:
    """Return what the interval does not cover of another run; also a single direction, if the records lack it."""
    alone = row_at(rows, row.device, row.reference or DIRECT, "mean", row.cell, "latency_asymmetry")
    return not_covered(row.sessions, "" if alone is not None else "request or reply by itself")


def _directions(rows: list[Row], row: Row, findings: list[Finding]) -> list[str]:
    """Return the latency of each direction over the same reference, and whether half a round trip represents both."""
    place = (row.device, row.reference or DIRECT, "mean", row.cell)
    request, reply, apart = (
        row_at(rows, *place, quantity) for quantity in ("latency_request", "latency_reply", "latency_asymmetry")
    )
    if request is None or reply is None:
        return []
    said = f"the request takes {figure(request.value)} ({span(request.value)}), the reply {figure(reply.value)}"
    said += f" ({span(reply.value)})"
    if any(one.name == "directions_differ" for one in findings):
        return [f"{said}: half a round trip is the latency of neither"]
    alike = apart is not None and apart.value.low is not None and not apart.value.excludes(0)
    return [f"{said}, which do not differ significantly" if alike else said]


def _bridge(rows: list[Row], row: Row) -> list[str]:
    """Return the Linux bridge's latency over the same reference, where another device is the subject."""
    beside = row.device != "bridge" and row.reference in (DIRECT, WIRE)
    bridge = row_at(rows, "bridge", row.reference or DIRECT, "mean", row.cell) if beside else None
    over = "wire" if row.reference == WIRE else "direct link"
    said = "" if bridge is None else f"{figure(bridge.value)} ({span(bridge.value)})"
    return [f"over the {over}, the Linux bridge adds {said}"] if said else []


def _per_byte(run: Run, rows: list[Row], row: Row, bed: float) -> list[str]:
    """Return the cost per byte over the same reference, if it is not zero and the bed resolves it; one per probe."""
    kind = (row.device, row.reference, "latency_slope")
    slopes = [one for one in rows if (one.device, one.reference, one.quantity) == kind]
    told = []
    for one in slopes:
        if one.value.excludes(0) and _bytes_between(run, one) * abs(one.value.estimate) > bed:
            places = decimals(one.value.half_width or abs(one.value.estimate))
            low, high = (fixed(end or 0, places) for end in (one.value.low, one.value.high))
            by = f" by {one.factors.probe}" if len(slopes) > 1 else ""
            told.append(f"{fixed(one.value.estimate, places)} ns for each byte more{by} ({low} to {high})")
    return told


def _bytes_between(run: Run, slope: Row) -> float:
    """Return the difference in bytes of the longest and the shortest frame of a fit."""
    probe = str(slope.factors.probe)
    sizes = [factors.mean_frame_bytes for cell, factors in run.cells.items() if lies_on_line(run, cell, probe)]
    return max(sizes) - min(sizes)
