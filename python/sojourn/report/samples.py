"""The samples that figures draw, from analysis/samples, with the report's own column names (µs, cell labels).

The only file that knows the samples' columns. It filters and thins; it computes no statistic.
"""

from __future__ import annotations

import polars as pl

from sojourn.report.run import Run, every

MOST_POINTS = 3500
"""The most points of a scatter plot: more would enlarge page and PDF without visible gain."""


def quantiles(run: Run) -> pl.DataFrame:
    """Round-trip quantiles: cell, device, exceedance (= 1 − p), rtt."""
    return _of_cells(run, "rtt_quantiles", "device", _rounded("exceedance"), _us("rtt_ns", "rtt", 3))


def timeline(run: Run, most: int = MOST_POINTS) -> pl.DataFrame:
    """Return thinned round trips over time: cell, device, s, rtt."""
    found = _of_cells(run, "timeline", "device", pl.col("elapsed_s").round(3).alias("s"), _us("rtt_ns", "rtt", 2))
    return _thinned(found, most)


def pairs(run: Run) -> pl.DataFrame:
    """Return one row per pair: cell, device, reference, us."""
    return _of_cells(run, "pairs", "device", "reference", _us("latency_ns", "us", 4))


def bands(run: Run) -> pl.DataFrame:
    """Return the fitted line with its band: device, reference, probe, frame, us, low, high.

    The line is drawn from the a and b of the tables; the values in the sample are medians at each size, which need not
    lie on one line.
    """
    found = _against_size(run, "lines")
    if found.is_empty():
        return found
    keys = ["device", "reference", "probe"]
    a, b = (
        run.rows(quantity, "fit").select(*keys, pl.col("estimate").alias(name))
        for quantity, name in (("latency_intercept", "a"), ("latency_slope", "b"))
    )
    joined = found.join(a, on=keys, nulls_equal=True).join(b, on=keys, nulls_equal=True)
    height = ((pl.col("a") + pl.col("b") * pl.col("frame")) / 1e3).round(5).alias("us")
    return joined.with_columns(height).drop("a", "b")


def points(run: Run) -> pl.DataFrame:
    """Return the measured value at each size: device, reference, probe, frame, us, low, high."""
    return _against_size(run, "sizes")


def pacing_errors(run: Run) -> pl.DataFrame:
    """Return quantiles of the pacing error: cell ("" for all together), device or tool, exceedance (= 1 − p), us."""
    found = run.samples("pacing_errors")
    if found is None or found.is_empty():
        return pl.DataFrame()
    cell = _trial_label(run) if run.by_tool else pl.lit("")
    by = ["icmp_bytes", "interval_ns"] if run.by_tool else []
    return (
        found.sort(by).select(cell.alias("cell"), "device", _rounded("exceedance"), _us("error_ns", "us", 4))
        if by
        else (found.select(cell.alias("cell"), "device", _rounded("exceedance"), _us("error_ns", "us", 4)))
    )


def achieved_intervals(run: Run) -> pl.DataFrame:
    """Configured and achieved intervals: device (the tool), size, asked and ms (both ms), excess and its ends (µs)."""
    rows = run.rows("departure_interval", "mean").filter(pl.col("interval_ns") > 0)
    less = [
        ((pl.col(key) - pl.col("interval_ns")) / 1e3).round(4).alias(name)
        for key, name in (("estimate", "excess"), ("ci_low", "excess_low"), ("ci_high", "excess_high"))
    ]
    size = pl.format("{} B", pl.coalesce("icmp_bytes", "payload_bytes")).alias("size")
    asked, ms = (pl.col("interval_ns") / 1e6).alias("asked"), (pl.col("estimate") / 1e6).round(6).alias("ms")
    return rows.select(pl.col("probe").alias("device"), size, asked, ms, *less)


def least(frame: pl.DataFrame, column: str) -> float:
    """The least value of a column."""
    return float(frame[column].min() or 0.0)  # type: ignore[arg-type]


def _of_cells(run: Run, name: str, *columns: str | pl.Expr) -> pl.DataFrame:
    """Return a sample of cells with the cells' names, in the order of the cells."""
    found = run.samples(name)
    if found is None or found.is_empty() or not run.cells:
        return pl.DataFrame()
    numbers = [cell.number for cell in run.cells]
    names = pl.col("cell").replace_strict(numbers, [cell.short for cell in run.cells], default=None)
    rank = pl.col("cell").replace_strict(numbers, range(len(numbers)), default=None)
    return found.sort(rank, maintain_order=True).select(names.alias("cell"), *columns).drop_nulls("cell")


def _against_size(run: Run, name: str) -> pl.DataFrame:
    found = run.samples(name)
    if found is None:
        return pl.DataFrame()
    times = (_us("estimate_ns", "us", 5), _us("ci_low_ns", "low", 5), _us("ci_high_ns", "high", 5))
    return found.select("device", "reference", "probe", pl.col("frame_bytes").round(1).alias("frame"), *times)


def _trial_label(run: Run) -> pl.Expr:
    spelled = pl.col("interval_ns").map_elements(lambda ns: every("regular", ns), return_dtype=pl.String)
    return pl.format("{} B, {}", "icmp_bytes", spelled)


def _us(column: str, name: str, decimals: int) -> pl.Expr:
    return (pl.col(column) / 1e3).round(decimals).alias(name)


def _rounded(column: str) -> pl.Expr:
    return pl.col(column).round_sig_figs(5)


def _thinned(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return about every k-th row and the slowest rows, `most` at most, in their order."""
    if frame.height <= most:
        return frame
    numbered = frame.with_row_index("row")
    slowest = numbered.top_k(most // 10, by="rtt")
    step = -(-frame.height // (most - slowest.height))
    kept = pl.concat([numbered.gather_every(step), slowest]).unique("row").sort("row")
    return kept.drop("row")
