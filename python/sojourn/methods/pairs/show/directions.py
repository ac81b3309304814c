"""The table of a device's latency in each direction, if the other end timestamps by the same clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.report.cells import cell_column, cell_entry
from sojourn.report.numbers import show
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.table import Column, Table, interval, number, text, whole
from sojourn.report.tables import in_order, pairs_of, shown_of

if TYPE_CHECKING:
    from sojourn.report.run import Run
    from sojourn.report.table import Entry


def directions(run: Run) -> Table:
    """Return request and reply separately, each with its timestamps."""
    columns = (
        Column(("device",), "Device", numeric=False),
        Column(("reference",), "Over", numeric=False),
        cell_column(run),
        Column(("latency_request_us",), "Request", "µs"),
        Column(("request_low_us", "request_high_us"), "95 % CI", "µs"),
        Column(("latency_reply_us",), "Reply", "µs"),
        Column(("reply_low_us", "reply_high_us"), "95 % CI", "µs"),
        Column(("latency_turnaround_us",), "Turnaround", "µs"),
        Column(("turnaround_low_us", "turnaround_high_us"), "95 % CI", "µs"),
        Column(("request_source",), "Stamps of the request", numeric=False),
        Column(("reply_source",), "Stamps of the reply", numeric=False),
        Column(("clock",), "Clock", numeric=False),
        Column(("sessions",), "Beds"),
        Column(("pairs",), "Pairs"),
    )
    rows = tuple(_entries(run, row) for row in in_order(run.rows("latency_request", "mean")))
    clock, _ = clock_and_stamps(run, "latency_request", "latency_reply")
    note = (
        "The difference of the mean times in one direction with and without the device, by pairs, of probes whose "
        f"arrival and reply the other end stamped: both ends read one clock ({clock}). What a stamp adds is on "
        "both paths alike. Turnaround is what the other end takes longer. Device latency, half the extra round trip, "
        "is half the sum of all three. It is the latency of one direction only where both are alike; where they differ "
        "beyond chance and beyond what the bed resolves, a finding says so."
    )
    return Table("directions", "Device latency of request and reply", columns, rows, note, wide=True)


def _entries(run: Run, request: dict[str, Any]) -> tuple[Entry, ...]:
    place = (request["cell"], request["device"])
    reply = run.row("latency_reply", "mean", *place, reference=request["reference"])
    between = run.row("latency_turnaround", "mean", *place, reference=request["reference"])
    there = shown_of(request)
    back, turned = (shown_of(one) if one else show(None, None, None, "ns") for one in (reply, between))
    cell = run.cell_of(request)
    return (
        text(request["device"], request["device"]),
        text(request["reference"]),
        cell_entry(run, cell.short if cell else "all", [request["cell"]]),
        number(there),
        interval(there),
        number(back),
        interval(back),
        number(turned),
        interval(turned),
        text(request["source"]),
        text(reply["source"] if reply else ""),
        text(request["clock"]),
        whole(request["sessions"] or 1),
        pairs_of(request),
    )
