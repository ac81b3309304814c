"""A device's latency in each direction, and whether half the difference of round trips is that of either.

It is known where the other end timestamps a request's arrival and its own reply (its process does, a kernel that
answers ICMP does not) and both ends read one clock. Both timestamps are taken in the same way on both paths of a pair,
so their effect cancels in the difference. The time of the other end between its two timestamps is in neither direction,
but in half a round trip: its increase on the device's path is `latency_turnaround`, whole and not halved.

Half the extra round trip is a direction's latency only where both are equal. That is tested at the headline's cell: the
request minus the mean of both is `latency_asymmetry`, and if its interval of 99.9 % excludes zero, and it is more than
the bed resolves, a finding reports it. Where request and reply differ in size they need not be equal: no finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.pairs import CONTROL_LEVEL
from sojourn.analysis.rows import Row
from sojourn.analysis.sessions import figure_of
from sojourn.analysis.wording import micro, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.pairs import Rounds
    from sojourn.analysis.run import Run

ONE_CLOCK = ("netns", "sim")
"""Backends whose hosts share a clock."""

WAYS = {
    "latency_request": ("departure_ns", "responder_arrival_ns"),
    "latency_reply": ("responder_departure_ns", "arrival_ns"),
}
"""Each direction, by its first and last timestamp."""

TIMES = WAYS | {"latency_turnaround": ("responder_arrival_ns", "responder_departure_ns")}
"""The directions, and the turnaround between them."""

TURNAROUND_MOST = 0.1
"""The least share of the headline that is another program's time for a finding."""

ASYMMETRY = "latency_asymmetry"
Matrices = dict[tuple[str, str], "NDArray[np.float64]"]
"""By quantity and path: the mean time in that direction by cells (rows) and rounds (columns); NaN where missing."""


def directions_of(run: Run, rounds: Rounds) -> Matrices:
    """Return each direction's times of every path, cell and round, the mean of its blocks; empty without a common
    clock."""
    if run.plan.get("bed", {}).get("backend") not in ONE_CLOCK:
        return {}
    times = [(pl.col(end) - pl.col(begin)).mean().alias(name) for name, (begin, end) in TIMES.items()]
    stamps = ["rtt", "responder_arrival_ns", "responder_departure_ns"]
    place = {cell: row for row, cell in enumerate(rounds.cells)}
    width = len(rounds.session)
    found = {(name, path): np.full((len(place), width), np.nan) for name in TIMES for path in rounds.devices if width}
    block = ("device", "cell", "round", "block")
    blocks = pl.concat(
        probes.drop_nulls(stamps).group_by(block).agg(times)
        for probes in run.path_by_path(*block, *stamps, "departure_ns", "arrival_ns")
    )
    means = blocks.group_by("device", "cell", "round").agg(pl.col(*TIMES).mean())
    for path, cell, at, *several in means.select("device", "cell", "round", *TIMES).iter_rows():
        if at < width:
            for name, value in zip(TIMES, several, strict=True):
                found[name, path][place[cell], at] = value
    return found


def direction_rows(run: Run, rounds: Rounds, ways: Matrices, of: Row | None) -> list[Row]:
    """Return what each device adds to the request and to the reply, in every cell; of the headline also its
    asymmetry."""
    if not ways:
        return []
    rows: list[Row] = []
    stamps = stamps_of(run)
    for device, reference in rounds.pairs():
        for name in TIMES:
            rows += _of_cells(
                run, rounds, stamps, (device, reference, name), ways[name, device] - ways[name, reference]
            )
    if of is not None and of.reference is not None and of.cell is not None:
        own = _of_cells(
            run, rounds, stamps, (of.device, of.reference, ASYMMETRY), _asymmetry(ways, of.device, of.reference)
        )
        rows += [row for row in own if row.cell == of.cell]
    return rows


def _of_cells(
    run: Run,
    rounds: Rounds,
    stamps: dict[int, tuple[str, str]],
    what: tuple[str, str, str],
    differences: NDArray[np.float64],
) -> Iterator[Row]:
    """Return one row per cell, over the same pairs as the device's latency."""
    device, reference, quantity = what
    is_pair = ~np.isnan(rounds.one_way(device, reference))
    for at, (cell, used) in enumerate(zip(rounds.cells, is_pair, strict=True)):
        found = figure_of(np.where(used, differences[at], np.nan), rounds.session)
        if found.mean.n:
            mask = np.zeros_like(is_pair)
            mask[at] = used & ~np.isnan(differences[at])
            row = Row(device, quantity, "mean", found.mean, "ns", reference, run.cells[cell], cell)
            row.probes, row.sessions = rounds.counted(device, reference, mask), found.sessions
            row.source = _source(stamps[cell], quantity)
            yield row


def _asymmetry(ways: Matrices, device: str, reference: str) -> NDArray[np.float64]:
    request, reply = (ways[name, device] - ways[name, reference] for name in WAYS)
    return np.asarray((request - reply) / 2, dtype=np.float64)


def stamps_of(run: Run) -> dict[int, tuple[str, str]]:
    """Return by cell the timestamp sources of departures and arrivals at the requesting end."""
    names = ("departure_source", "arrival_source")
    several = run.stamps.drop_nulls("arrival_source").group_by("cell").agg(pl.col(*names).unique())
    return {
        cell: (" and ".join(sorted(departure)), " and ".join(sorted(arrival)))
        for cell, departure, arrival in several.select("cell", *names).iter_rows()
    }


def _source(stamps: tuple[str, str], quantity: str) -> str:
    """Return the timestamps of a quantity, in words."""
    request, reply = f"departure {stamps[0]}, arrival responder", f"departure responder's program, arrival {stamps[1]}"
    own = {"latency_request": request, "latency_reply": reply, "latency_turnaround": "responder, and its program"}
    return own.get(quantity, f"request: {request}; reply: {reply}")


def asymmetry_findings(rounds: Rounds, ways: Matrices, rows: list[Row], bed_ns: float) -> Iterator[Finding]:
    """Return a finding if request and reply of equal size differ significantly at the headline's cell."""
    of = next((row for row in rows if row.quantity == ASYMMETRY), None)
    if of is None or of.factors.payload_bytes != of.factors.response_payload_bytes:
        return
    at, reference = rounds.cells.index(of.cell or 0), of.reference or ""
    is_pair = ~np.isnan(rounds.one_way(of.device, reference)[at])
    values = np.where(is_pair, _asymmetry(ways, of.device, reference)[at], np.nan)
    found = figure_of(values, rounds.session, CONTROL_LEVEL).mean
    if found.excludes(0) and abs(found.estimate) > bed_ns:
        low, high = found.low or 0.0, found.high or 0.0
        side = "more" if found.estimate > 0 else "less"
        ends = " to ".join(micro(end) for end in sorted((abs(low), abs(high))))
        sentence = (
            f"the request takes {micro(abs(found.estimate))} ({percent(found.level)} CI {ends}) {side} than the mean "
            "of both directions: half a round trip is the latency of neither"
        )
        yield Finding("directions_differ", sentence, found.estimate, (Place(of.device, of.cell),))


def turnaround_findings(rows: list[Row], bed_ns: float) -> Iterator[Finding]:
    """Return a finding if the answering program was slower on the device's path, as half of that is in the headline."""
    of = next((row for row in rows if row.quantity == ASYMMETRY), None)
    if of is None:
        return
    place = (of.device, of.reference, of.cell)
    means = {row.quantity: row.value.estimate for row in rows if (row.device, row.reference, row.cell) == place}
    if not {*TIMES} <= means.keys():
        return
    ways, added = sum(means[name] for name in WAYS) / 2, means["latency_turnaround"] / 2
    if abs(added) > max(bed_ns, TURNAROUND_MOST * abs(ways + added)):
        sentence = (
            f"{micro(added)} of the figure is the answering program's, which took another time on the two paths: the "
            f"mean of request and reply alone is {micro(ways)}"
        )
        yield Finding("turnaround_counted", sentence, added, (Place(of.device, of.cell),))
