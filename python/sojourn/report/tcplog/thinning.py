"""Thin millions of samples to the resolution of a screen: each pixel column keeps its first, lowest, highest and last.

A step line looks the same to the pixel, extremes included; nothing is averaged.
"""

from __future__ import annotations

import polars as pl

COLUMNS = 1600
"""Pixel columns, two per point of the figure's width: enough for print and for zooming in."""


def thin(steps: pl.DataFrame, span: tuple[float, float], columns: int = COLUMNS) -> pl.DataFrame:
    """Return the rows of `steps` (t, v, in the order of t; v null: unknown from then on) that a screen can show."""
    kept = steps.filter(_changes() | (pl.int_range(pl.len()) == pl.len() - 1))
    if kept.height <= 4 * columns:
        return kept
    low, high = span
    pixel = ((pl.col("t") - low) / max(high - low, 1e-9) * columns).floor().cast(pl.Int64)
    rows = kept.with_row_index("row").with_columns(pixel=pixel)
    ends = rows.group_by("pixel").agg(
        first=pl.col("row").first(),
        last=pl.col("row").last(),
        lowest=pl.col("row").get(pl.col("v").arg_min()),
        highest=pl.col("row").get(pl.col("v").arg_max()),
    )
    names = ("first", "lowest", "highest", "last")
    wanted = pl.concat([ends[name] for name in names]).drop_nulls().unique().sort()
    return kept[wanted.to_list()]


def changes(steps: pl.DataFrame) -> int:
    """Return how often the value changes, which is what a picture of unlimited width would show."""
    return int(steps.select(_changes().sum()).item())


def _changes() -> pl.Expr:
    return pl.col("v").ne_missing(pl.col("v").shift()) | (pl.int_range(pl.len()) == 0)


def with_holes(steps: pl.DataFrame, shown: pl.Expr) -> pl.DataFrame:
    """Return the steps with holes where `shown` is false: the last value before a hole lasts until the hole begins."""
    masked = steps.with_columns(v=pl.when(shown).then(pl.col("v")))
    opens = pl.col("v").is_null() & pl.col("v").shift().is_not_null()
    ends = masked.with_columns(v=pl.col("v").shift(), opens=opens).filter("opens").drop("opens")
    rank = pl.lit(1, dtype=pl.Int8)
    both = pl.concat([masked.with_columns(rank=rank), ends.with_columns(rank=rank - 1)])
    return both.sort("t", "rank", maintain_order=True).drop("rank")


def spans_where(steps: pl.DataFrame, holds: pl.Expr) -> pl.DataFrame:
    """Return the spans (low, high) in which a condition holds; each sample is valid until the next."""
    marked = steps.select("t", until=pl.col("t").shift(-1).fill_null(pl.col("t")), holds=holds.fill_null(value=False))
    runs = marked.with_columns(run=pl.col("holds").rle_id()).filter("holds")
    return (
        runs.group_by("run", maintain_order=True).agg(low=pl.col("t").first(), high=pl.col("until").last()).drop("run")
    )


def merged(spans: pl.DataFrame, span: tuple[float, float], columns: int = COLUMNS) -> pl.DataFrame:
    """Return the spans (low, high), joined where a screen could not show them as two, each at least a pixel wide."""
    pixel = max(span[1] - span[0], 1e-9) / columns
    ordered = spans.sort("low").with_columns(high=pl.max_horizontal("high", pl.col("low") + pixel))
    reach = pl.col("high").cum_max().shift()
    opens = (pl.col("low") > reach + pixel).fill_null(value=True)
    runs = ordered.with_columns(run=opens.cum_sum())
    return runs.group_by("run", maintain_order=True).agg(low=pl.col("low").min(), high=pl.col("high").max()).drop("run")


def counted(events: pl.DataFrame, span: tuple[float, float], columns: int = COLUMNS) -> pl.DataFrame:
    """Return the events (t, n) with those of one pixel column added up, at the time of the first."""
    pixel = ((pl.col("t") - span[0]) / max(span[1] - span[0], 1e-9) * columns).floor()
    return (
        events.group_by(pixel.alias("pixel"), maintain_order=True)
        .agg(pl.col("t").first(), pl.col("n").sum())
        .drop("pixel")
    )
