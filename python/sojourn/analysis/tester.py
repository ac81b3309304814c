"""Findings about the tester: late departures, clock steps, local drops, incomplete records.

Everything here is about the tester and its bed, never about the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sojourn.analysis.departures import missing_trials
from sojourn.analysis.device_rules import rules_unseen
from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.path import PIECE_ROWS
from sojourn.analysis.run import A_A, DIRECT
from sojourn.analysis.surroundings import contended, disturbed, offloads
from sojourn.analysis.wording import micro, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from sojourn.analysis.rows import Row
    from sojourn.analysis.run import Run

LATE_SHARE = 0.05
"""With a larger share of late departures in a cell, the schedule was not kept."""

LATE_LEAST_NS = 10_000
LATE_PART_OF_INTERVAL = 0.1
"""A departure is late if its pacing error exceeds a tenth of the interval, and 10 us."""

STRETCHED = 1.05
STRETCHED_SHARE = 0.1
"""The tester is the limit if more than a tenth of a cell's blocks took 5 % longer than scheduled."""

STEP_LEAST_NS = 10_000
STEP_RATE = 500e-6
"""Clocks are slewed by up to 500 ppm; that is no step."""

MIXED_SHARE = 0.001
"""Sources differ by about 10 us: a smaller share from another source moves a mean by less than 10 ns."""

OPEN_LOOPS = ("regular", "poisson")


def tester_findings(run: Run, *, visits: int) -> list[Finding]:
    """Return every finding about the tester; rounds visit each path `visits` times."""
    checks = (
        _sender_late,
        _tester_limited,
        _clock_stepped,
        _local_drops,
        _timestamps,
        debug_build,
        offloads,
        contended,
        disturbed,
        rules_unseen,
    )
    return [*(finding for check in checks for finding in check(run)), *_not_whole(run, _missing_blocks(run, visits))]


def probing_findings(run: Run) -> list[Finding]:
    """Return the findings about the tester of a run whose trials are not the plan's pairs: all but missing blocks."""
    checks = (_sender_late, _tester_limited, _clock_stepped, _local_drops, _timestamps, debug_build, offloads)
    return [finding for check in (*checks, contended, disturbed, rules_unseen) for finding in check(run)]


def departures_findings(run: Run) -> list[Finding]:
    """Return the findings of a run that measures senders: there a late departure is a result."""
    checks = (_clock_stepped, _local_drops, debug_build, offloads, contended, disturbed)
    missing = missing_trials(run, _rounds(run))
    return [*(finding for check in checks for finding in check(run)), *_not_whole(run, missing)]


def stamp_sources(run: Run, rows: list[Row]) -> None:
    """Set on every row without them the clock and the sources of timestamps."""
    breakdown = run.stamps.drop_nulls("arrival_source").sort("cell", "len", descending=[False, True])
    by_cell: dict[int | None, list[str]] = {None: []}
    for cell, departure, arrival, _ in breakdown.iter_rows():
        said = str(departure) if departure == arrival else f"departure {departure}, arrival {arrival}"
        for key in (cell, None):
            if said not in by_cell.setdefault(key, []):
                by_cell[key].append(said)
    for row in rows:
        row.clock = row.clock or run.clock
        row.source = row.source or "user" if row.quantity == "rtt_user" else row.source or _and(by_cell.get(row.cell))


def _and(sources: list[str] | None) -> str:
    return " and ".join(sources or [])


def late_limits(intervals: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return for each cell the pacing error from which a departure is late, in ns, from cells and their intervals."""
    return {cell: float(max(LATE_LEAST_NS, interval * LATE_PART_OF_INTERVAL)) for cell, interval in intervals}


def late_shares(errors: pl.DataFrame, limits: dict[int, float]) -> dict[Place, float]:
    """Return the places with too many late departures, and their share: from device, cell, error_ns."""
    limit = pl.col("cell").replace_strict(limits, default=None, return_dtype=pl.Float64)
    shares = errors.group_by("device", "cell", maintain_order=True).agg(
        (pl.col("error_ns") > limit).mean().alias("share")
    )
    return {
        Place(str(device), int(cell)): share
        for device, cell, share in shares.filter(pl.col("share") > LATE_SHARE).iter_rows()
    }


def late_sentence(what: str, share: float, limit_ns: float) -> str:
    """Return the sentence with the share of late departures and its limit."""
    return (
        f"in the worst cell {percent(share)} of the {what} left more than {micro(limit_ns)} after their intended "
        f"departure (limit: {percent(LATE_SHARE)} of them): the schedule was not kept"
    )


def _sender_late(run: Run) -> Iterator[Finding]:
    behind = (pl.col("departure_ns") - pl.col("intended_ns")).alias("error_ns")
    is_paced = pl.col("schedule").is_in(OPEN_LOOPS)
    cells = run.blocks.filter(is_paced).unique("cell").select("cell", "interval_ns")
    limits = late_limits(cells.iter_rows())
    found: dict[Place, float] = {}
    for probes in run.path_by_path("device", "cell", "schedule", "departure_ns", "intended_ns"):
        found |= late_shares(probes.filter(is_paced).select("device", "cell", behind), limits)
    if found:
        places, worst = worst_first(found)
        yield Finding(
            "sender_late",
            late_sentence("probes", worst, limits[places[0].cell or 0]),
            worst,
            places,
        )


def _tester_limited(run: Run) -> Iterator[Finding]:
    times = ("departure_ns", "intended_ns")
    ends = [end for name in times for end in (pl.col(name).min(), pl.col(name).max().alias(f"last_{name}"))]
    sent, planned = (pl.col(f"last_{name}") - pl.col(name) for name in times)
    # Slice by slice: grouping all probes at once would take as much memory as the probes.
    each = (run.probes.clear(), *run.probes.iter_slices(PIECE_ROWS))
    pieces = [piece.group_by("block").agg(ends) for piece in each]
    firsts, lasts = (pl.col(*times).min(), pl.col(*(f"last_{name}" for name in times)).max())
    blocks = (
        run.blocks.filter(pl.col("schedule").is_in(OPEN_LOOPS))
        .select("device", "cell", "block")
        .join(pl.concat(pieces).group_by("block").agg(firsts, lasts), on="block")
        .select("device", "cell", (sent / planned).alias("stretch"))
        .filter(pl.col("stretch").is_finite())
    )
    cells = (
        blocks.group_by("device", "cell")
        .agg((pl.col("stretch") > STRETCHED).mean().alias("share"), pl.col("stretch").max())
        .filter(pl.col("share") > STRETCHED_SHARE)
    )
    found = {Place(device, cell): stretch for device, cell, _, stretch in cells.iter_rows()}
    if found:
        places, worst = worst_first(found)
        sentence = f"the tester did not reach the configured rate: blocks took up to {percent(worst - 1)} longer"
        yield Finding("tester_limited", sentence, worst, places)


def _clock_stepped(run: Run) -> Iterator[Finding]:
    """Compare TAI with MONOTONIC_RAW from each block's start to its end and to the next start, within a process."""
    for blocks in run.blocks.sort("started_raw_ns").partition_by("part"):
        step = stepped_by(blocks, blocks["clock_error_ns"].to_numpy())
        if step:
            yield Finding("clock_stepped", f"the clock stepped by {micro(step)} during the run", step)
            return


def stepped_by(blocks: pl.DataFrame, error_ns: NDArray[np.int64]) -> float:
    """Return the largest clock step of one process, beyond what slewing and reading the clock explain; or 0."""
    raw = _interleaved(blocks, "started_raw_ns", "ended_raw_ns")
    apart = _interleaved(blocks, "started_ns", "ended_ns") - raw
    error = np.repeat(error_ns, 2)
    steps = np.diff(apart)
    beyond = np.abs(steps) - (STEP_LEAST_NS + STEP_RATE * np.abs(np.diff(raw)) + error[1:] + error[:-1])
    worst = int(beyond.argmax()) if len(beyond) else 0
    return float(steps[worst]) if len(beyond) and beyond[worst] > 0 else 0.0


def _interleaved(blocks: pl.DataFrame, first: str, second: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.stack([blocks[first].to_numpy(), blocks[second].to_numpy()], axis=1).ravel()


def _local_drops(run: Run) -> Iterator[Finding]:
    dropped = run.blocks.filter(pl.col("local_drops") > 0).group_by("device", "cell").agg(pl.col("local_drops").sum())
    found = {Place(device, cell): float(drops) for device, cell, drops in dropped.iter_rows()}
    if found:
        places, _ = worst_first(found)
        total = sum(found.values())
        sentence = f"the tester's own socket dropped {total:.0f} frames: these are not lost"
        yield Finding("local_drops", sentence, total, places)


def _timestamps(run: Run) -> Iterator[Finding]:
    yield from stamps_of(run.stamps)


def stamps_of(counted: pl.DataFrame) -> Iterator[Finding]:
    """Return findings about the timestamp sources of each cell, over all its paths: both halves of a pair need the
    same.

    `counted`: the number of packets (`len`) by cell, departure_source and arrival_source.
    """
    mixed: dict[Place, float] = {}
    user: dict[Place, float] = {}
    for column in ("departure_source", "arrival_source"):
        counts = counted.drop_nulls(column).group_by("cell", column).agg(pl.col("len").sum())
        for (cell,), sources in counts.partition_by("cell", as_dict=True).items():
            place, count = Place(None, int(str(cell))), dict(sources.select(column, "len").iter_rows())
            strangers = 1 - max(count.values()) / sum(count.values())
            if strangers > MIXED_SHARE:
                mixed[place] = max(strangers, mixed.get(place, 0.0))
            if "user" in count:
                user[place] = max(count["user"] / sum(count.values()), user.get(place, 0.0))
    if mixed:
        places, worst = worst_first(mixed)
        sentence = f"{percent(worst)} of the timestamps came from another source than the rest of their cell"
        yield Finding("mixed_timestamps", sentence, worst, places)
    if user:
        places, worst = worst_first(user)
        sentence = (
            f"{percent(worst)} of the timestamps were taken by the program, not the kernel: they include its wake-up"
        )
        yield Finding("user_timestamps", sentence, worst, places)


def debug_build(run: Run) -> Iterator[Finding]:
    if any("debug" in run.table(name).metadata("profile") for name in ("probes", "streams")):
        yield Finding("debug_build", "the instrument is a debug build: its own delays are several times larger")


def _not_whole(run: Run, missing: int) -> Iterator[Finding]:
    """Return findings about truncated records and missing blocks."""
    yield from truncated(run, missing)
    yield from incomplete(run, missing, nothing=not run.blocks.height and not run.captures.height)


def truncated(run: Run, missing: int) -> Iterator[Finding]:
    """Return a finding for truncated records, unless a later part replaced them and nothing is missing."""
    cut = [part for table in run.tables.values() for part in table.truncated]
    last = max((part.number for table in run.tables.values() for part in table.parts), default=0)
    excused = not missing and all(part.number < last for part in cut)
    if cut and not excused:
        names = ", ".join(f"{part.path.name} ({part.cut})" for part in cut[:3])
        yield Finding(
            "truncated_record",
            f"a record was not written to its end: {names}; the part before is used",
            float(len(cut)),
        )
    yield from other_columns(run)


def other_columns(run: Run) -> Iterator[Finding]:
    """Return findings for records that lack columns of their own version, or have columns of a later one."""
    lacking = [part for table in run.tables.values() for part in table.parts if part.missing]
    if lacking:
        names = "; ".join(f"{part.path.name} lacks {', '.join(part.missing)}" for part in lacking[:3])
        yield Finding("columns_missing", f"{names}: results from these columns are wrong", float(len(lacking)))
    later = [part for table in run.tables.values() for part in table.parts if part.unknown]
    if later:
        names = "; ".join(f"{part.path.name} has {', '.join(part.unknown)}" for part in later[:3])
        yield Finding("columns_unknown", f"{names}, written by a later Sojourn: these are ignored", float(len(later)))


def incomplete(run: Run, missing: int, *, nothing: bool) -> Iterator[Finding]:
    """Return a finding if nothing was measured, something is missing, or the run did not finish."""
    finished = any(event.get("event") == "finished" for event in run.log)
    if nothing:
        yield Finding("incomplete", "nothing was measured")
    elif missing:
        yield Finding("incomplete", f"{missing} planned blocks are missing", float(missing))
    elif not finished:
        yield Finding("incomplete", "the run did not finish")


def _rounds(run: Run) -> int:
    """Return the number of rounds in the plan; the measured ones if the plan leaves it open."""
    asked = run.plan.get("pairs", {}).get("rounds")
    return asked if isinstance(asked, int) else max(run.blocks["round"].to_list(), default=0) + 1


def _missing_blocks(run: Run, visits: int) -> int:
    """Return the number of blocks that the plan's rounds need for every cell and path, and that are not complete."""
    asks_for_a_a = run.plan.get("pairs", {}).get("a_a", True)
    whole = run.blocks.join(run.recorded, on="block", how="inner").filter(pl.col("len") >= pl.col("sent"))
    paths = {(one, 1) for one in (DIRECT, *run.planned_devices)} | ({(A_A, 1)} if asks_for_a_a else set())
    paths |= set(run.blocks.select("device", "instance").unique().iter_rows())  # twins
    return max(0, _rounds(run) * len(run.cells) * len(paths) * visits - whole.height)
