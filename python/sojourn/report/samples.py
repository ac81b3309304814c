"""What the figures draw, taken from analysis/samples and given the report's own column names (µs, cell labels).

The only file that knows the samples' columns. It filters and thins; it computes no statistic.
"""

from __future__ import annotations

import polars as pl

from sojourn.report.run import Run

US = 1e-3


def quantiles(run: Run) -> pl.DataFrame:
    """Round-trip quantiles: cell, device, q (= 1 − p), rtt."""
    return _labelled(run, "rtt_quantiles", "cell", "device", "q", (pl.col("rtt_ns") * US).round(4).alias("rtt"))


def timeline(run: Run, most: int = 4000) -> pl.DataFrame:
    """Thinned round trips over time: cell, device, s, rtt."""
    found = _labelled(
        run,
        "timeline",
        "cell",
        "device",
        pl.col("elapsed_s").round(3).alias("s"),
        (pl.col("rtt_ns") * US).round(3).alias("rtt"),
    )
    return thinned(found, most)


def pairs(run: Run) -> pl.DataFrame:
    """One row per pair: cell, device, reference, us."""
    return _labelled(run, "pairs", "cell", "device", "reference", (pl.col("latency_ns") * US).round(4).alias("us"))


def departure_errors(run: Run) -> pl.DataFrame:
    """Departure error quantiles: device, q (= 1 − p), us."""
    found = run.samples("departure_errors")
    if found is None:
        return pl.DataFrame()
    return found.select("device", "q", (pl.col("error_ns") * US).round(5).alias("us"))


def bands(run: Run) -> pl.DataFrame:
    """The fitted line with its band: device, reference, frame, us, low, high."""
    found = run.samples("lines")
    if found is None:
        return pl.DataFrame()
    times = [
        (pl.col(f"{name}_ns") * US).round(5).alias(us)
        for name, us in (("estimate", "us"), ("ci_low", "low"), ("ci_high", "high"))
    ]
    return found.select("device", "reference", pl.col("frame_bytes").alias("frame"), *times)


def thinned(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Every k-th row, so that at most `most` are left."""
    return frame if frame.height <= most else frame.gather_every(-(-frame.height // most))


def _labelled(run: Run, name: str, *columns: str | pl.Expr) -> pl.DataFrame:
    found = run.samples(name)
    if found is None:
        return pl.DataFrame()
    names = pl.DataFrame({"cell": [cell.number for cell in run.cells], "name": [cell.short for cell in run.cells]})
    rank = pl.Series("cell", [cell.number for cell in run.cells])
    joined = found.join(names.cast({"cell": found.schema["cell"]}), on="cell", how="inner")
    ordered = joined.sort(pl.col("cell").replace_strict(rank, range(len(rank))), maintain_order=True)
    return ordered.with_columns(pl.col("name").alias("cell")).select(*columns)
