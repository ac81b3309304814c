"""Read the results of `sojourn match`, as the frames that figures draw; from its output folder, nothing else.

Delays are those of the rows: timestamps of each tap's clock, minus the time on a link if requested. With two clocks
they are relative to the least of their direction, as rows do not have the clocks' offset.

Frames: pair, direction and
- delays: exceedance, delay_ns; the whole distribution
- timeline: elapsed_s, delay_ns; thinned, the slowest kept
- density: rate_low_bps, rate_high_bps, low_ns, high_ns, share (of the packets of that class of rates)
- sizes: bytes, packets, p50_ns, low_ns, high_ns, p99_ns; a class of sizes
- losses: elapsed_s, entered, lost, left, reordered; a slice of time
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.stats import binom

from sojourn.analysis.samples import curve_of
from sojourn.analysis.serialisation import serialisation_ns
from sojourn.errors import RequestError
from sojourn.records import read_table

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PLACE = ("pair", "direction")
SLICES = 200
LEAST_SLICE_NS = 10_000_000
RATE_CLASSES = 10
DELAY_CLASSES = 10
"""Classes per decade."""
EXACT_SIZES = 12
"""Up to this many sizes each is shown; more are grouped by powers of the square root of 2."""
LEAST_IN_A_CLASS = 10
TIMELINE_POINTS = 4_000
SEEN_FIRST = ("lost", "evicted", "pending")
FCS_BYTES = 4


@dataclass(frozen=True)
class Crossings:
    """The summary, and every frame."""

    summary: dict[str, Any]
    delays: pl.DataFrame
    timeline: pl.DataFrame
    density: pl.DataFrame
    sizes: pl.DataFrame
    losses: pl.DataFrame


def read(folder: Path, subtracted_bps: int | None) -> Crossings:
    """Read the output folder of `match`."""
    summary = json.loads(folder.joinpath("summary.json").read_text(encoding="utf-8"))
    rows = read_table(folder, "crossings").frame
    if rows.is_empty():
        raise RequestError("no packet was seen by both taps: there is no delay to show")
    missing = read_table(folder, "unmatched").frame.filter(pl.col("outcome").is_in(SEEN_FIRST))
    groups = with_delays(rows, summary, subtracted_bps).partition_by(PLACE, as_dict=True, maintain_order=True)
    made: dict[str, list[pl.DataFrame]] = {name: [] for name in ("delays", "timeline", "density", "sizes", "losses")}
    for place, some in sorted(groups.items(), key=lambda one: (one[0][0], str(one[0][1]) != "forward")):
        gone = missing.filter((pl.col("pair") == place[0]) & (pl.col("direction") == place[1]))
        # Each direction has the clock of the tap that its packets pass first.
        begin = min(int(one[0]) for one in (some["first_ns"].sort(), gone["time_ns"].sort()) if len(one))
        seen, lost = since(begin, some, "first_ns"), since(begin, gone, "time_ns")
        slice_s = max(float(seen["elapsed_s"].to_numpy().max()) / SLICES, LEAST_SLICE_NS / 1e9)
        curve = curve_of(some["delay"].to_numpy()).rename({"value": "delay_ns"})
        frames = (curve, timeline(seen), density(seen, slice_s), sizes(seen), losses(seen, lost, slice_s))
        for name, frame in zip(made, frames, strict=True):
            labels = (pl.lit(place[0], pl.Int32).alias("pair"), pl.lit(str(place[1])).alias("direction"))
            made[name].append(frame.with_columns(*labels))
    return Crossings(summary, **{name: pl.concat(frames, how="diagonal_relaxed") for name, frames in made.items()})


def since(begin: int, rows: pl.DataFrame, at: str) -> pl.DataFrame:
    """Add the time of each row in seconds after the beginning."""
    return rows.with_columns(elapsed_s=(pl.col(at) - begin).cast(pl.Float64) / 1e9)


def with_delays(rows: pl.DataFrame, summary: dict[str, Any], subtracted_bps: int | None) -> pl.DataFrame:
    """Add `delay` in ns: minus the time on the link, and relative to the least where there are two clocks."""
    lengths = rows["length_bytes"].unique().to_list()
    times = {one: float(serialisation_ns(int(one), subtracted_bps)) for one in lengths}
    own = rows.with_columns(
        delay=pl.col("delay_ns").cast(pl.Float64)
        - pl.col("length_bytes").replace_strict(times, return_dtype=pl.Float64)
    )
    apart = [at for at, pair in enumerate(summary["pairs"]) if pair["clocks"]["relation"] != "one"]
    above = pl.col("delay") - pl.col("delay").min().over(PLACE)
    return own.with_columns(delay=pl.when(pl.col("pair").is_in(apart)).then(above).otherwise("delay"))


def timeline(some: pl.DataFrame) -> pl.DataFrame:
    """Return packets at equal steps, and the slowest."""
    slowest = some.sort("delay", descending=True).head(TIMELINE_POINTS // 10)
    steps = some.sort("first_ns").gather_every(max(1, some.height // (TIMELINE_POINTS - slowest.height)))
    both = pl.concat([slowest, steps]).select("elapsed_s", pl.col("delay").alias("delay_ns"))
    return both.unique(maintain_order=True).sort("elapsed_s")


def density(some: pl.DataFrame, slice_s: float) -> pl.DataFrame:
    """Return how the packets of each class of throughput are distributed over classes of delay.

    Throughput is that of the slice of time in which a packet entered, in bits of frames with FCS.
    """
    bits = 8 * (pl.col("length_bytes").cast(pl.Int64) + FCS_BYTES)
    place = (pl.col("elapsed_s") / slice_s).floor().cast(pl.Int64)
    rated = some.with_columns(slice=place).with_columns(rate_bps=bits.sum().over("slice") / slice_s)
    most = float(rated["rate_bps"].to_numpy().max())
    step = most / RATE_CLASSES
    number = (pl.col("rate_bps") / step).floor().clip(0, RATE_CLASSES - 1)
    positive = rated.filter(pl.col("delay") > 0).with_columns(
        class_=number, bin=(DELAY_CLASSES * pl.col("delay").log10()).floor()
    )
    counted = positive.group_by("class_", "bin").len().sort("class_", "bin")
    return counted.select(
        (pl.col("class_") * step).alias("rate_low_bps"),
        ((pl.col("class_") + 1) * step).alias("rate_high_bps"),
        (10 ** (pl.col("bin") / DELAY_CLASSES)).alias("low_ns"),
        (10 ** ((pl.col("bin") + 1) / DELAY_CLASSES)).alias("high_ns"),
        (pl.col("len") / pl.col("len").sum().over("class_")).alias("share"),
    )


def sizes(some: pl.DataFrame) -> pl.DataFrame:
    """Return the median with its order-statistics interval, and the 99th percentile, of each size or class of sizes."""
    whole = pl.col("length_bytes").cast(pl.Float64) + FCS_BYTES
    classed = some.with_columns(bytes=whole)
    if some["length_bytes"].n_unique() > EXACT_SIZES:
        classed = classed.with_columns(klass=(2 * pl.col("bytes").log(2)).floor())
        classed = classed.with_columns(bytes=pl.col("bytes").mean().over("klass"))
    found = []
    for (size,), own in classed.partition_by("bytes", as_dict=True).items():
        if own.height >= LEAST_IN_A_CLASS:
            values = np.sort(own["delay"].to_numpy())
            low, high = ends_of(values, 0.5)
            p99 = float(values[int(np.ceil(0.99 * len(values))) - 1]) if len(values) >= 100 else None
            found.append((size, len(values), float(values[(len(values) - 1) // 2]), low, high, p99))
    schema = {"bytes": pl.Float64, "packets": pl.Int64, "p50_ns": pl.Float64}
    schema |= dict.fromkeys(("low_ns", "high_ns", "p99_ns"), pl.Float64)
    return pl.DataFrame(found, schema=schema, orient="row").sort("bytes")


def ends_of(ordered: NDArray[np.float64], quantile: float) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a quantile by order statistics; packets are assumed independent."""
    count = len(ordered)
    low, high = int(binom.ppf(0.025, count, quantile)), count + 1 - int(binom.ppf(0.025, count, 1 - quantile))
    return (float(ordered[low - 1]) if low >= 1 else None, float(ordered[high - 1]) if high <= count else None)


def losses(some: pl.DataFrame, lost: pl.DataFrame, slice_s: float) -> pl.DataFrame:
    """Return for each slice of time how many packets entered, were lost (until the end), left, and were reordered (RFC
    4737)."""
    place = (pl.col("elapsed_s") / slice_s).floor().cast(pl.Int64).alias("slice")
    crossed = some.group_by(place).agg(left=pl.len(), reordered=pl.col("reordering_extent").is_not_null().sum())
    gone = lost.group_by(place).agg(lost=pl.len())
    both = crossed.join(gone, on="slice", how="full", coalesce=True).fill_null(0).sort("slice")
    return both.select(
        (pl.col("slice") * slice_s).alias("elapsed_s"), (pl.col("left") + pl.col("lost")).alias("entered"), "lost",
        "left", "reordered",
    )  # fmt: skip
