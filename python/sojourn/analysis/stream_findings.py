"""Findings of a run of streams: about the tester, then about the packets.

The tester: late or stretched sending, a missed load, refused and dropped frames, mixed timestamp sources, stepped
clocks, unaccounted frames; whether departures are a Poisson process is asked of every method at once (`poisson`). The
results: impossible values. The rest are notes."""

from __future__ import annotations

import itertools
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.clocks import asymmetries, clock_findings
from sojourn.analysis.device_rules import rules_unseen
from sojourn.analysis.finding import Finding, Place, worst_apart, worst_first
from sojourn.analysis.packets import ACTUAL, ROUND_TRIP, Values
from sojourn.analysis.run import A_A
from sojourn.analysis.soundness import soundness_findings
from sojourn.analysis.stream_rows import OPEN_LOOPS, bed_resolution
from sojourn.analysis.surroundings import contended, disturbed, offloads
from sojourn.analysis.tester import (
    debug_build,
    incomplete,
    late_limits,
    late_sentence,
    late_shares,
    stamps_of,
    stepped_by,
    truncated,
)
from sojourn.analysis.wording import fixed, micro, percent
from sojourn.statistics.modes import find_modes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

MISSED = 0.005
"""A load that deviates by more than this share is not the configured one."""

SMALL_BUFFER = 0.001
"""With more local drops than this share of the frames sent, the receive buffer is too small."""

LEAST_FOR_MODES = 300
APART_NS = 100.0
"""Modes nearer to each other than this may be clock ticks: virtual machines have ticks of tens of nanoseconds."""

COUNTED = ("packet", "udp")
"""Engines whose frames the interfaces count one by one; redirected frames may bypass the counters."""

NOTES = {
    "loss": ("lost", "frames were lost"),
    "duplication": ("duplicated", "frames arrived more than once"),
    "reordering": ("reordered", "frames were reordered"),
    "late_frames": ("late", "frames arrived later than the plan allows"),
    "corruption": ("corrupted", "frames arrived damaged"),
    "sender_refused": ("refused", "frames were refused by the sender's own queue and never sent"),
}


def stream_findings(
    run: Run,
    flows: pl.DataFrame,
    packets: pl.DataFrame,
    errors: pl.DataFrame,
    overloads: Collection[Place] = (),
    *,
    takes_delays: bool = True,
) -> list[Finding]:
    """Every finding about the measurement; `errors` are pacing errors.

    In the `overloads` more was offered than the sender or the path can do, on purpose: a missed load is a note there.
    A study that takes no delays, and counts frames alone, has no use of clocks that could be compared.
    """
    missing = missing_trials(run, flows)
    found = [*_late(run, errors, overloads), *_missed(flows, overloads), *_dropped(flows)]
    found += [*_conserved(run, flows), *_contradicted(flows)]
    found += [
        *stamps_of(packets.group_by("cell", "departure_source", "arrival_source").len()),
        *_steps(run),
        *(
            one
            for one in clock_findings(run.clock_lines, _measured(run.streams), packets)
            if takes_delays or one.name != "clock_unsynchronised"
        ),
    ]
    found += [
        *asymmetries(run),
        *debug_build(run),
        *offloads(run),
        *contended(run),
        *disturbed(run),
        *rules_unseen(run),
        *_dead(flows),
        *_notes(flows),
    ]
    nothing = not flows.height and not run.blocks.height
    return [*found, *truncated(run, missing), *incomplete(run, missing, nothing=nothing)]


def _measured(streams: pl.DataFrame) -> pl.DataFrame:
    """Without the tester's own trials and loads, and messages over TCP: no delays are given, and no clock is asked."""
    if "purpose" not in streams.columns:
        return streams
    return streams.filter(pl.col("purpose") == "measure", (pl.col("via") != "tcp").fill_null(value=True))


def sound(rows: list[Row]) -> list[Finding]:
    """Findings about the results themselves."""
    of_control = [row.sampled for row in rows if row.device == A_A and row.statistic == "pooled"]
    control = next((value for value in of_control if value.excludes(0)), None)
    return [*soundness_findings(rows, bed_resolution(rows), control), *_impossible(rows)]


def missing_trials(run: Run, flows: pl.DataFrame) -> int:
    """How many planned trials have no valid record; 0 where the log does not say how many were planned."""
    planned = max((int(one.get("blocks", 0)) for one in run.log if one.get("event") == "started"), default=0)
    for event in run.log:
        # The plan was cut to the rounds that were measured.
        if event.get("event") in {"time-is-up", "stopped"} and "rounds" in event:
            planned = planned * int(event["rounds"]) // int(event["asked"])
    events = [
        event for event in run.trial_events.values() if event.get("kept", True) and event.get("trial") is not None
    ]
    recorded = set(flows["block"].to_list()) | set(run.blocks["block"].to_list())
    whole = {event["trial"] for event in events if event["block"] in recorded}
    return max(0, planned - len(whole))


def modes_apart(values: NDArray[np.float64]) -> list[float]:
    """The modes of delays, but for those so near to each other that clock ticks may make them."""
    modes = find_modes(values)
    return modes[:1] + [mode for before, mode in pairwise(modes) if mode - before > APART_NS]


def several_modes(several: list[Values]) -> Iterator[Finding]:
    """Distributions of delays with several modes."""
    found: dict[Place, float] = {}
    where: dict[Place, list[float]] = {}
    for one in several:
        if one.measure in (ACTUAL, ROUND_TRIP) and one.weights is None and len(one.values) >= LEAST_FOR_MODES:
            modes = modes_apart(one.within_sessions())
            if len(modes) > 1:
                place = Place(one.device, one.cell)
                found[place], where[place] = float(len(modes)), modes
    if found:
        places, worst = worst_first(found)
        said = ", ".join(micro(mode) for mode in where[places[0]])
        sentence = f"the distribution of delays has {worst:.0f} modes, at {said}"
        yield Finding("several_modes", sentence, worst, places)


def _late(run: Run, errors: pl.DataFrame, overloads: Collection[Place]) -> Iterator[Finding]:
    paced = {cell: one for cell, one in run.cells.items() if one.schedule in OPEN_LOOPS}
    limits = late_limits((cell, (one.interval_ns or 0) * (one.senders or 1)) for cell, one in paced.items())
    found = late_shares(errors.filter(pl.col("cell").is_in(list(paced))), limits)
    yield from worst_apart(
        "sender_late", found, overloads, lambda place: late_sentence("frames", found[place], limits[place.cell or 0])
    )


def _missed(flows: pl.DataFrame, overloads: Collection[Place]) -> Iterator[Finding]:
    """Fewer frames were sent than configured, or sending took longer."""
    paced = flows.filter((pl.col("schedule") != "flood") & (pl.col("asked_pps") > 0))
    short = paced.with_columns(share=1 - pl.col("sent") / pl.col("asked")).filter(pl.col("share") > MISSED)
    yield from _worst("load_missed", short, "{} of the configured frames were never sent", overloads)
    slow = paced.with_columns(share=1 - pl.col("offered_pps") / pl.col("intended_pps"))
    stretched = slow.filter((pl.col("share") > MISSED) & (pl.col("sent") == pl.col("asked")))
    said = "sending took longer than configured: the load was {} too low"
    yield from _worst("duration_stretched", stretched, said, overloads)


def _dropped(flows: pl.DataFrame) -> Iterator[Finding]:
    dropped = flows.with_columns(share=pl.col("local_drops") / pl.col("sent")).filter(pl.col("local_drops") > 0)
    total = int(dropped["local_drops"].sum())
    said = f"the tester's own socket or ring dropped {total} frames, at most {{}} of a trial's: these are not lost"
    yield from _worst("local_drops", dropped, said)
    small = dropped.filter(pl.col("share") > SMALL_BUFFER)
    yield from _worst("buffer_too_small", small, "the receive buffer was too small: it dropped {} of a trial's frames")


def _worst(name: str, rows: pl.DataFrame, sentence: str, overloads: Collection[Place] = ()) -> Iterator[Finding]:
    """One finding for the places of these rows, by their `share`."""
    if rows.height:
        worst = rows.group_by("device", "cell").agg(pl.col("share").max())
        found = {Place(device, cell): float(value) for device, cell, value in worst.iter_rows()}
        yield from worst_apart(name, found, overloads, lambda place: sentence.format(percent(found[place])))


def _conserved(run: Run, flows: pl.DataFrame) -> Iterator[Finding]:
    """Every frame sent is counted exactly once, and the interfaces counted no fewer frames than the tester."""
    parts = pl.col("first") + pl.col("corrupted") + pl.col("local_drops") + pl.col("lost")
    astray = flows.with_columns(share=(pl.col("sent") - parts).abs() / pl.col("sent").clip(lower_bound=1))
    wrong = astray.filter((pl.col("share") > 0) | (pl.col("lost") < 0))
    yield from _worst(
        "not_conserved", wrong, "{} of the frames sent are missing, or counted twice, among received, lost and dropped"
    )
    yield from _counted(run, flows)


def _contradicted(flows: pl.DataFrame) -> Iterator[Finding]:
    """More frames arrived, or higher numbers, than the sender says that it sent."""
    wrong = flows.filter(pl.col("excess") > 0).with_columns(share=pl.col("excess") / pl.col("sent").clip(lower_bound=1))
    said = (
        "at least {} more frames of a stream arrived than its sender reports as sent: they were forged, or come from "
        "another sender"
    )
    yield from _worst("counts_contradict", wrong, said)


def _counted(run: Run, flows: pl.DataFrame) -> Iterator[Finding]:
    """Frames that the tester counted as sent or received and the interface did not count."""
    arrived = pl.col("first") + pl.col("duplicated") + pl.col("corrupted")
    blocks = (
        flows.filter(pl.col("via").is_in(COUNTED))
        .group_by("block", "device", "cell")
        .agg(pl.col("sent").filter(pl.col("flow").is_first_distinct()).sum(), arrived.sum().alias("arrived"))
    )
    found: dict[Place, float] = {}
    for block, device, cell, sent, came in blocks.iter_rows():
        counters = (run.trial_events.get(block) or {}).get("counters") or {}
        left, reached = _total(counters, "a-", "tx_packets"), _total(counters, "b-", "rx_packets")
        short = max(0 if left is None else sent - left, 0 if reached is None else came - reached)
        if short > 0:
            found[Place(device, cell)] = max(float(short), found.get(Place(device, cell), 0.0))
    if found:
        places, worst = worst_first(found)
        sentence = f"in a trial the tester counted {worst:.0f} frames that the interface did not count"
        yield Finding("not_conserved", sentence, worst, places)


def _total(counters: dict[str, dict[str, int]], side: str, name: str) -> int | None:
    """A counter over all interfaces of one side, None where it was not read."""
    told = [one[name] for dev, one in counters.items() if dev.startswith(side) and one.get(name) is not None]
    return sum(told) if told else None


def _steps(run: Run) -> Iterator[Finding]:
    for rows in run.streams.sort("started_raw_ns").partition_by("part", "who"):
        once = rows.unique("block", keep="first", maintain_order=True)
        step = stepped_by(once, np.zeros(once.height, dtype=np.int64))
        if step:
            yield Finding("clock_stepped", f"the clock stepped by {micro(step)} during the run", step)
            return


def _dead(flows: pl.DataFrame) -> Iterator[Finding]:
    cells = flows.group_by("device", "cell").agg(pl.col("first", "sent", "local_drops").sum())
    dead = cells.filter((pl.col("first") == 0) & (pl.col("sent") > 0)).with_columns(share=pl.lit(1.0))
    yield from _worst(
        "path_dead", dead, "no frame of a stream arrived ({} lost): the path does not forward, or the address is wrong"
    )


def _notes(flows: pl.DataFrame) -> Iterator[Finding]:
    for name, (column, what) in NOTES.items():
        seen = flows.group_by("device", "cell").agg(pl.col(column).sum(), pl.col("sent").sum())
        rows = seen.filter(pl.col(column) > 0).with_columns(share=pl.col(column) / pl.col("sent").clip(lower_bound=1))
        yield from _worst(
            name, rows, f"{fixed(int(rows[column].sum()), 0)} {what}, " + "at most {} of those of one cell"
        )


def _impossible(rows: list[Row]) -> Iterator[Finding]:
    """An estimate outside its interval, a share outside 0 to 1, a quantile above a higher one."""
    wrong = [row for row in rows if _is_impossible(row)] + _crossed(rows)
    if wrong:
        named = f"{wrong[0].quantity} {wrong[0].statistic} of {wrong[0].device}"
        places = tuple(dict.fromkeys(Place(row.device, row.cell) for row in wrong))
        sentence = f"{len(wrong)} results are impossible, among them {named}"
        yield Finding("impossible", sentence, float(len(wrong)), places)


def _is_impossible(row: Row) -> bool:
    value = row.value
    slack = 1e-9 * max(abs(value.estimate), 1e-9) if np.isfinite(value.estimate) else 0.0
    outside = (
        value.low is not None
        and value.high is not None
        and not value.low - slack <= value.estimate <= value.high + slack
    )
    share = row.statistic in ("ratio", "jain") and not 0 <= value.estimate <= 1 + 1e-9
    return (outside and not np.isnan(value.estimate)) or share


def _crossed(rows: list[Row]) -> list[Row]:
    order = ("min", "p1", "p50", "p90", "p99", "p99.9", "max")
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.statistic in order and row.reference is None and row.against is None:
            groups.setdefault((row.device, row.cell, row.port, row.node, row.quantity), []).append(row)
    wrong = []
    for group in groups.values():
        ranked = sorted(group, key=lambda row: order.index(row.statistic))
        wrong += [low for low, high in itertools.pairwise(ranked) if low.value.estimate > high.value.estimate]
    return wrong
