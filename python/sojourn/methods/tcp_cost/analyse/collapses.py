"""Collapses of congestion windows beside the cost of a log: whether slices with it have more of them, or those without.

A collapse is an expiry of the retransmission timer (RTO), after which the window is one segment (RFC 5681, 3.1): the
kernel counts these with the log and without. A window that falls to two segments without one is in the log alone, so
it cannot be compared. In siftr-2007, section V.B, throughput rose with the log because fewer packets were lost;
whether windows collapsed without the log nobody could see. Counts; does not say what lost the packets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy import special

from sojourn.analysis.finding import Finding
from sojourn.analysis.wording import percent
from sojourn.methods.tcp_cost.analyse.judged import CHANCE
from sojourn.methods.tcp_cost.analyse.seen import CELL
from sojourn.statistics.proportion import clopper_pearson, share_by_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.methods.tcp_cost.analyse.seen import Seen
    from sojourn.statistics.interval import Interval

SCHEMA: dict[str, Any] = {
    "path": pl.String, "flows": pl.Int64, "where": pl.String, "setting": pl.String, "packets_per_log": pl.Int64,
    "pairs": pl.Int64, "collapses": pl.Int64, "share": pl.Float64, "share_low": pl.Float64, "share_high": pl.Float64,
    "off_collapses": pl.Int64, "off_share": pl.Float64, "off_share_low": pl.Float64, "off_share_high": pl.Float64,
    "more": pl.Int64, "fewer": pl.Int64, "p": pl.Float64,
}  # fmt: skip
"""`share` of the slices has a collapse or more; `more` pairs have more of them with the setting, `fewer` without it.
Rows without a path are of a setting in all cells; they alone have a p."""


def collapses(seen: Seen) -> pl.DataFrame:
    """A row for each setting and each cell whose slices were counted; runs of earlier versions have none.

    Settings are judged, each by its pairs of all cells: those of one cell are too few to tell. `p` is Bonferroni's.
    """
    counted = seen.pairs.drop_nulls(["timeouts", "off_timeouts"])
    settings = counted.partition_by("setting", maintain_order=True)
    judged = [_row(rows, ("setting",)) for rows in settings]
    tests = [sign_p(row["more"], row["fewer"]) * len(settings) for row in judged]
    cells = [_row(rows, CELL) for rows in counted.partition_by(CELL, maintain_order=True)]
    made = [row | {"p": min(1.0, p)} for row, p in zip(judged, tests, strict=True)] + cells
    return pl.DataFrame([{name: row.get(name) for name in SCHEMA} for row in made], schema=SCHEMA)


def findings(found: pl.DataFrame) -> Iterator[Finding]:
    """That slices with the log have more collapses than those without, or fewer; controls have none or another log."""
    apart = found.filter((pl.col("setting") == "on") & (pl.col("p") <= CHANCE))
    if apart.is_empty():
        return
    row = apart.row(0, named=True)
    order = ("with", "without") if row["more"] > row["fewer"] else ("without", "with")
    with_it, without = (_said(row, name) for name in ("", "off_"))
    sentence = (
        f"congestion windows collapse more often {order[0]} the log than {order[1]} it: {with_it} with it and "
        f"{without} without; a change of the throughput is then also an effect of changed losses"
    )
    yield Finding("windows_collapse", sentence, float(row["share"] - row["off_share"]))


def _said(row: dict[str, Any], side: str) -> str:
    count, share, low, high = (row[f"{side}{name}"] for name in ("collapses", "share", "share_low", "share_high"))
    return f"{count} in {percent(share)} of the slices (95 % CI {percent(low)} to {percent(high)})"


def _row(rows: pl.DataFrame, names: tuple[str, ...]) -> dict[str, Any]:
    first = rows.row(0, named=True)
    here, off = (rows[name].to_numpy().astype(np.int64) for name in ("timeouts", "off_timeouts"))
    session = np.unique(rows["session"].to_numpy(), return_inverse=True)[1]
    more, fewer = int((here > off).sum()), int((here < off).sum())
    return {
        **{name: first[name] for name in names},
        "pairs": rows.height,
        **_counted("", here, session),
        **_counted("off_", off, session),
        "more": more,
        "fewer": fewer,
    }


def _counted(name: str, counts: Any, session: Any) -> dict[str, Any]:
    """How many there are, and the share of slices with any: on several beds, beds are clusters."""
    several = len(np.unique(session)) > 1
    has = counts > 0
    share: Interval = share_by_rounds(has, session) if several else clopper_pearson(int(has.sum()), len(has))
    return {
        f"{name}collapses": int(counts.sum()), f"{name}share": share.estimate,
        f"{name}share_low": share.low, f"{name}share_high": share.high,
    }  # fmt: skip


def sign_p(more: int, fewer: int) -> float:
    """How likely so uneven a split of pairs that differ is where either way is as likely: the sign test, two-sided."""
    return min(1.0, 2 * float(special.bdtr(min(more, fewer), more + fewer, 0.5))) if more + fewer else 1.0
