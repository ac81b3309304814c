"""Two summaries side by side: flows are paired by addresses and ports, the rest by the order in which they began."""

from __future__ import annotations

import polars as pl

ENDS = ["local_address", "local_port", "remote_address", "remote_port"]
BY_ENDS, BY_ORDER = "addresses and ports", "order of beginning"
PLACES = {"flow", *ENDS, "first_ns"}
"""Columns whose difference is meaningless."""


def paired(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Return one row per pair: `a_…` and `b_…` of each column, `difference_…` (b - a) and `ratio_…` (b / a) of each
    figure."""
    pairs = _pairs(a, b)
    left = a.rename({name: f"a_{name}" for name in a.columns})
    right = b.rename({name: f"b_{name}" for name in b.columns})
    rows = pairs.join(left, on="a_flow", how="left").join(right, on="b_flow", how="left")
    figures = [name for name, kind in a.schema.items() if kind.is_numeric() and name not in PLACES]
    return rows.with_columns(
        *((pl.col(f"b_{name}") - pl.col(f"a_{name}")).alias(f"difference_{name}") for name in figures),
        *(
            pl.when(pl.col(f"a_{name}") != 0).then(pl.col(f"b_{name}") / pl.col(f"a_{name}")).alias(f"ratio_{name}")
            for name in figures
        ),
    )


def compared(a: pl.DataFrame, b: pl.DataFrame) -> str:
    """Return text for a person: one line per figure of each pair."""
    parts = []
    figures = [name for name, kind in a.schema.items() if kind.is_numeric() and name not in PLACES]
    for row in paired(a, b).iter_rows(named=True):
        lines = [f"flow {row['a_flow'] or '-'} and {row['b_flow'] or '-'}: {_why(row['paired_by'])}"]
        lines.append(f"  {'':<33}{'A':>12}{'B':>12}{'B - A':>12}{'B / A':>8}")
        for name in figures:
            values = [row[f"{what}_{name}"] for what in ("a", "b", "difference")]
            if any(values):
                lines.append(f"  {name:<33}{''.join(f'{_shown(one):>12}' for one in values)}{_ratio(row, name):>8}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _why(paired_by: str | None) -> str:
    return f"paired by {paired_by}" if paired_by else "no such flow in the other log"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _ratio(row: dict[str, float | None], name: str) -> str:
    ratio = row[f"ratio_{name}"]
    return "-" if ratio is None else f"{ratio:.3g}"


def _pairs(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Return the flow numbers of each pair, and the reason for the pairing."""
    ours, theirs = (_once(one) for one in (a, b))
    same = ours.join(theirs, on=ENDS, suffix="_b").select(
        pl.col("flow").alias("a_flow"), pl.col("flow_b").alias("b_flow")
    )
    rest = [
        one.filter(~pl.col("flow").is_in(same[f"{name}_flow"].implode()))
        .sort("first_ns", "flow")
        .select(pl.col("flow").alias(f"{name}_flow"))
        .with_row_index("at")
        for name, one in (("a", a), ("b", b))
    ]
    by_order = rest[0].join(rest[1], on="at", how="full").drop("at", "at_right")
    is_pair = pl.col("a_flow").is_not_null() & pl.col("b_flow").is_not_null()
    by_order = by_order.with_columns(pl.when(is_pair).then(pl.lit(BY_ORDER)).alias("paired_by"))
    both = pl.concat([same.with_columns(pl.lit(BY_ENDS).alias("paired_by")), by_order])
    return both.select("paired_by", "a_flow", "b_flow").sort("a_flow", "b_flow", nulls_last=True)


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the flows whose addresses and ports are unique in their log."""
    return rows.filter(pl.struct(ENDS).is_unique()).select("flow", *ENDS)
