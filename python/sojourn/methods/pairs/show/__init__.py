"""The report of a run of pairs: what devices add to round trips, and how that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from sojourn.methods.pairs.show.directions import directions
from sojourn.methods.pairs.show.sizes import lines
from sojourn.report import tables
from sojourn.report.figures import cdfs, over_time
from sojourn.report.numbers import count, nominal
from sojourn.report.pacing import departures
from sojourn.report.paired import control, differences
from sojourn.report.parts import Key, Parts
from sojourn.report.paths import path_words
from sojourn.report.sessions import session_machine, session_paths
from sojourn.report.stamps import clock_and_stamps
from sojourn.report.tables import fitted_lines, in_order, shown_of

if TYPE_CHECKING:
    from sojourn.report.run import Run


def words(run: Run) -> list[str]:
    """Return how it was measured: unit, clock, timestamps, intervals."""
    clock, stamps = clock_and_stamps(run, "rtt")
    beds = run.sessions
    over = (
        f"{beds} beds, each set up anew with other addresses, interface indexes, order of links, processes and cores: "
        "the mean of a bed is one value, and the interval is Student's t, or REML with Hartung and Knapp's where beds "
        "have unequal numbers of pairs; it reaches further towards a long tail (by Hall's transformed t)"
        if beds > 1
        else "the pairs of one bed (Student's t): they do not cover how another bed would differ"
    )
    control = CONTROLS[bool(run.plan.get("bed", {}).get("twins"))]
    lines = [line.format(clock=clock, stamps=stamps, control=control, over=over) for line in METHOD]
    return [lines[0], *path_words(run), *lines[1:], SIZES[run.size_column]]


SIZES = {
    "icmp_bytes": "A cell's size is the ICMP message's: header and data.",
    "payload_bytes": "A cell's size is the payload's; a line a + b × size counts the whole frame.",
    "frame_bytes": "A cell's size is the whole frame's, its check sequence included.",
}
METHOD = (
    (
        "Each pair of blocks gives one estimate: short blocks of probes with and without the device follow each other, "
        "in random and then mirrored order, so that steady drift cancels. Half the difference of their mean round "
        "trips is the device's latency one way. A sample is a pair, never a packet."
    ),
    "All times are of one clock: {clock}.",
    (
        "Departures and arrivals have timestamps of {stamps}. Round trips are from the actual departure, and also "
        "from the intended one where probes were scheduled."
    ),
    (
        "A latency is the arithmetic mean of its pairs; results.json also has Hodges and Lehmann's pseudomedian, and a "
        "finding says where the two disagree. The A/A control, {control}, shows what the bed can resolve; a smaller "
        "difference is not reported as one. Intervals are at 95 %, over {over}."
    ),
)
CONTROLS = {False: "the direct link against itself", True: "one direct link against another of the same bed"}


def keys(run: Run) -> list[Key]:
    """Return the headline first, then what each device adds over the direct link in the same cell; the bed's
    resolution."""
    head = run.verdict.get("pairs") or {}
    kind = (head.get("device"), head.get("reference"))
    cell = head.get("cell", min((one.number for one in run.cells), default=None))
    found = run.rows("device_latency", "mean").filter(pl.col("cell").eq_missing(cell), pl.col("device") != "a/a")
    means = sorted(in_order(found), key=lambda row: (row["device"], row["reference"]) != kind)
    keys = [_latency_key(run, row) for row in means if (row["device"], row["reference"]) == kind or _is_direct(row)]
    for row in run.rows("resolution").head(1).iter_rows(named=True):
        control = run.rows("device_latency", "pooled", device="a/a").iter_rows(named=True)
        lines = tuple(f"A/A control pooled: {_interval(one)}" for one in control if one["ci_low"] is not None)
        keys.append(Key("The bed can resolve", f"{row['estimate'] / 1e3:.2g}", "µs", lines, "a/a"))
    pairs = run.rows("device_latency", "mean")["n"].to_list()
    if pairs:
        most = max(pairs)
        cells = f"{len(run.cells)} cells" if len(run.cells) > 1 else "one cell"
        beds = (f"on {head['sessions']} beds, each made anew",) if head.get("sessions") else ()
        keys.append(Key("Pairs", count(sum(pairs)), "", (f"{cells}, up to {most} per cell and device", *beds)))
    return keys


def _is_direct(row: dict[str, Any]) -> bool:
    return bool(row["reference"] == "direct")


def _latency_key(run: Run, row: dict[str, Any]) -> Key:
    """Return a device's latency in one cell, with the parts of its interval below it."""
    shown, cell = shown_of(row), run.cell_of(row)
    beds = f" over {row['sessions']} beds" if row["sessions"] else ", one bed"
    said = ["too few pairs for an interval" if row["ci_low"] is None else f"{_interval(row)}{beds}"]
    for statistic, quantity, words in BESIDE:
        found = run.rows(quantity, statistic, device=row["device"], reference=row["reference"])
        for beside in found.filter(pl.col("cell") == row["cell"]).iter_rows(named=True):
            one = shown_of(beside)
            said.append(words.format(value=one.text, interval=one.interval, unit=one.unit))
    for line, slope in fitted_lines(run):
        if (line["device"], line["reference"]) == (row["device"], row["reference"]) and _is_not_zero(slope):
            one = shown_of(slope)
            said.append(f"{one.text} ns for each byte more ({one.interval})")
    where = f", {cell.short}" if cell and len(run.cells) > 1 else ""
    return Key(
        f"{row['device']} over {row['reference']}, mean{where}", shown.text, shown.unit, tuple(said), row["device"]
    )


BESIDE = (
    ("mean", "device_latency_each", "each of what it counts: {value} {unit} ({interval})"),
    ("p50", "rtt_shift", "the median round trip is longer by {value} {unit} ({interval})"),
    ("within_bed", "device_latency", "within one bed: {interval} {unit}"),
    ("sd", "between_beds", "beds differ by sd {value} {unit} ({interval})"),
    ("next_run", "device_latency", "another run of as many beds: {interval} {unit}"),
)
"""Rows shown with a mean over beds, and their wording."""


def _is_not_zero(row: dict[str, Any]) -> bool:
    return row["ci_low"] is not None and row["ci_high"] is not None and not row["ci_low"] <= 0 <= row["ci_high"]


def _interval(row: dict[str, Any]) -> str:
    shown = shown_of(row)
    return f"{nominal(row['level'])} CI {shown.interval} {shown.unit}"


PARTS = Parts(
    tables=(
        tables.device_latency,
        directions,
        tables.rtt,
        tables.lines,
        tables.tails,
        tables.conservation,
        tables.departures,
        session_paths,
        session_machine,
    ),
    figures=(cdfs, over_time, lines, differences, control, departures),
    keys=keys,
    words=words,
    results=("device_latency",),
    has_round_trips=True,
)
