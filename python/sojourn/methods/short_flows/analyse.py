"""Method "short-flows": completion times of transfers, by size.

A completion time begins before the first byte is written on an open connection, and ends when the receiving application
has read the last one: the handshake is not in it. Percentiles are of all transfers of a session (of a round, where the
run has one bed), and a figure is the mean over sessions, with Student's interval.

Quantities (statistic; unit); flows, direction and congestion are columns of their own, payload_bytes is the size:

- completion_time; mean p50 p90 p99 (where ten transfers lie beyond it) [ns]
- transfer_rate (the size over the mean completion time) [bit/s]

Between hosts with two clocks, rows have the errors of these, and the interval of a time holds the 95 % error.
"""

from __future__ import annotations

from collections import defaultdict
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.device_rules import rules_unseen
from sojourn.analysis.factors import Factors
from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.host_clock import Trials, clock_findings, on_one_clock
from sojourn.analysis.lateness import late_emulators
from sojourn.analysis.rows import LoadSetting, Row, over_beds
from sojourn.analysis.samples import Sample, curve_of, shared
from sojourn.analysis.study import Study
from sojourn.analysis.surroundings import contended, disturbed
from sojourn.analysis.tcp_trials import interrupted, trials_of
from sojourn.analysis.tester import debug_build, incomplete, truncated
from sojourn.analysis.wording import counted, fixed
from sojourn.records.events import SHORT_FLOWS
from sojourn.records.shape import require
from sojourn.statistics.interval import student_t
from sojourn.statistics.quantile import allowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from sojourn.analysis.host_clock import OneClock, Reader
    from sojourn.analysis.run import Run
    from sojourn.analysis.tcp_trials import Done

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

SHORT_CURVES = Sample(
    "A point of the distribution of the completion times over a path in a cell.",
    {**shared("exceedance"), "value": (pl.Float64, "The completion time in ns."), **shared("device cell")},
)
SAMPLES = {"short_curves": SHORT_CURVES}


def study(run: Run) -> Study:
    """Return every figure of every cell over every device."""
    joined = on_clock_of_a(run)
    run = joined.run
    places: dict[tuple[str, int], list[Done]] = defaultdict(list)
    for trial in trials_of(run):
        require(trial.connections, SHORT_FLOWS, f"{run.folder.log}: connections of trial {trial.block}")
        places[trial.path, trial.cell].append(trial)
    rows = [row for place in sorted(places) for row in rows_of(joined, places[place])]
    missing = max(0, int(run.plan.get("short", {}).get("rounds", 0)) * len(places) - sum(map(len, places.values())))
    findings = [
        *truncated(run, missing),
        *incomplete(run, missing, nothing=not places),
        *short_of(places.values()),
        *clock_findings(
            joined, {Place(*at): [one.block for one in own] for at, own in places.items()}, None, delays=True
        ),
        *late_of(run, places, rows),
        *interrupted(run),
        *debug_build(run),
        *contended(run),
        *disturbed(run),
        *rules_unseen(run),
    ]
    curves = [
        SHORT_CURVES.of(curve_of(times_of(own)).with_columns(device=pl.lit(device), cell=cell))
        for (device, cell), own in sorted(places.items())
    ]
    samples = {"short_curves": pl.concat(curves)} if curves else {}
    headline = next((row for row in rows if row.statistic == "p50"), rows[0] if rows else None)
    return Study(rows, findings, sentence(headline), samples=samples, headline=headline)


def on_clock_of_a(run: Run) -> OneClock:
    """Return the run with the times at which B had read its transfers on A's clock."""

    def read_at_far(entry: dict[str, Any], read: Reader) -> dict[str, Any]:
        several = entry["connections"]
        require(several, SHORT_FLOWS, f"{run.folder.log}: connections of trial {entry['block']}")
        times = read([one["read_ns"] for one in several])
        return entry | {"connections": [one | {"read_ns": at} for one, at in zip(several, times, strict=True)]}

    return on_one_clock(run, Trials("tcp-trial", lambda _: True, read_at_far, lasting, device="path"), {})


def lasting(entry: dict[str, Any]) -> tuple[float, float]:
    """Return when the first byte of a trial was written, and when its last one was read."""
    several = entry["connections"]
    return float(min(one["written_ns"] for one in several)), float(max(one["read_ns"] for one in several))


def times_of(several: Sequence[Done]) -> NDArray[np.float64]:
    """Return the completion times of all transfers of these trials, in ns."""
    return np.array([float(one["read_ns"] - one["written_ns"]) for done in several for one in done.connections])


def rows_of(joined: OneClock, several: Sequence[Done]) -> Iterator[Row]:
    """Return the figures of one cell over one device."""
    run = joined.run
    units: dict[int, list[Done]] = defaultdict(list)
    for one in several:
        units[one.session if run.sessions > 1 else one.round].append(one)
    times = [times_of(own) for own in units.values()]
    least = min(len(one) for one in times)
    size = int(several[0].connections[0]["size_bytes"])
    values = {("completion_time", "mean", "ns"): [one.mean() for one in times]}
    values |= {
        ("completion_time", said, "ns"): [float(np.quantile(one, p)) for one in times]
        for said, p in PERCENTILES.items()
        if allowed(p, least)
    }
    values["transfer_rate", "mean", "bit/s"] = [8e9 * size / one.mean() for one in times]
    first = several[0]
    for (quantity, statistic, unit), each in values.items():
        row = Row(
            first.path, quantity, statistic, student_t(np.array(each)), unit, cell=first.cell, clock="TAI",
            source="user", factors=Factors(payload_bytes=size, pipe=first.pipe or None),
            sessions=len(units) if run.sessions > 1 else None, probes=sum(map(len, times)),
            setting=LoadSetting(1, "up", first.congestion),
        )  # fmt: skip
        joined.state(row, (one.block for one in several))
        if quantity == "transfer_rate" and row.clock_error95_ns:
            error = row.value.estimate * row.clock_error95_ns / float(np.mean(np.concatenate(times)))
            row.scatter, row.value = row.value, row.value.widened(error)
        yield row


def late_of(run: Run, places: Mapping[tuple[str, int], Sequence[Done]], rows: Sequence[Row]) -> Iterator[Finding]:
    """Return findings for emulators whose lateness is a part of the mean completion time."""
    mean = {
        (row.device, row.cell): row.value.estimate
        for row in rows
        if row.cell is not None and (row.quantity, row.statistic) == ("completion_time", "mean")
    }
    yield from late_emulators(run, {one.block: place for place, own in places.items() for one in own}, mean)


def short_of(places: Any) -> Iterator[Finding]:
    """Return a finding for transfers whose received bytes differ from those sent: TCP delivers each byte once."""
    wrong = [
        (Place(done.path, done.cell), one)
        for several in places
        for done in several
        for one in done.connections
        if one["received_bytes"] != one["size_bytes"] or one["read_ns"] < one["written_ns"]
    ]
    if wrong:
        place, one = wrong[0]
        said = (
            f"{counted(len(wrong), 'transfer')} did not arrive whole, or before they were sent: of the first, "
            f"{one['received_bytes']} of {one['size_bytes']} bytes"
        )
        yield Finding("not_conserved", said, float(len(wrong)), (place,))


def sentence(row: Row | None) -> str:
    """Return the completion time of the first cell."""
    if row is None:
        return "No transfer was measured"
    value = row.value
    half = 0.0 if value.low is None or value.high is None else (value.high - value.low) / 2e6
    places = max(1, min(6, 1 - floor(log10(half)))) if half > 0 else 1
    ends = "" if value.low is None or value.high is None else (
        f" (95 % CI {fixed(value.low / 1e6, places)} to {fixed(value.high / 1e6, places)})"
    )  # fmt: skip
    what = {"p50": "the median", "mean": "the mean"}[row.statistic]
    return (
        f"A transfer of {row.factors.payload_bytes} bytes over {row.device} takes "
        f"{fixed(value.estimate / 1e6, places)} ms in {what}{ends}{over_beds(row)}, from its first byte to its last"
    )
