"""Collapses of congestion windows: whether slices with the log have more of them than slices without, or fewer.

A collapse is an expiry of the retransmission timer (RTO), after which the window is one segment (RFC 5681, 3.1): the
kernel counts these with the log and without. A fall of the window to two segments without a timeout is visible only in
the log, so it cannot be compared. In siftr-2007, section V.B, throughput rose with the log because fewer packets were
lost; whether windows collapsed without the log could not be seen. Counts collapses; does not find the cause of losses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy import special

from sojourn.analysis.finding import Finding
from sojourn.analysis.samples import Sample, shared
from sojourn.analysis.wording import percent
from sojourn.methods.tcp_cost.analyse.judged import CHANCE
from sojourn.methods.tcp_cost.analyse.ratios import SETTING
from sojourn.methods.tcp_cost.analyse.seen import CELL
from sojourn.statistics.proportion import clopper_pearson, share_by_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.methods.tcp_cost.analyse.seen import Seen
    from sojourn.statistics.interval import Interval

_COUNTED = {
    "collapses": (pl.Int64, "Collapses of congestion windows"),
    "share": (pl.Float64, "The share of slices with any"),
    "share_low": (pl.Float64, "The lower end of its interval"),
    "share_high": (pl.Float64, "The upper end of its interval"),
}
COLLAPSES = Sample(
    "A setting in a cell; without a path in all cells.",
    {
        **shared("path flows where"),
        "setting": SETTING,
        **shared("packets_per_log"),
        "pairs": (pl.Int64, "Pairs of slices."),
        **{name: (kind, f"{doc}, with the setting.") for name, (kind, doc) in _COUNTED.items()},
        **{f"off_{name}": (kind, f"{doc}, without it.") for name, (kind, doc) in _COUNTED.items()},
        "more": (pl.Int64, "Pairs with more of them with the setting."),
        "fewer": (pl.Int64, "Pairs with fewer of them with the setting."),
        "p": (pl.Float64, "The p of the sign test times the number of settings; null for a single cell."),
    },
)


def collapses(seen: Seen) -> pl.DataFrame:
    """Return a row for each setting and each cell with counts; runs of earlier versions have none.

    Settings are tested, each with its pairs of all cells: one cell has too few. `p` has Bonferroni's correction.
    """
    counted = seen.pairs.drop_nulls(["timeouts", "off_timeouts"])
    settings = counted.partition_by("setting", maintain_order=True)
    judged = [_row(rows, ("setting",)) for rows in settings]
    tests = [sign_p(row["more"], row["fewer"]) * len(settings) for row in judged]
    cells = [_row(rows, CELL) for rows in counted.partition_by(CELL, maintain_order=True)]
    made = [row | {"p": min(1.0, p)} for row, p in zip(judged, tests, strict=True)] + cells
    return pl.DataFrame([{name: row.get(name) for name in COLLAPSES.own} for row in made], schema=COLLAPSES.own)


def findings(found: pl.DataFrame) -> Iterator[Finding]:
    """Yield a finding if slices with the log have more or fewer collapses than slices without it; controls
    yield none."""
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
    """Return the number of collapses and the share of slices with any; of several beds, beds are the clusters."""
    several = len(np.unique(session)) > 1
    has = counts > 0
    share: Interval = share_by_rounds(has, session) if several else clopper_pearson(int(has.sum()), len(has))
    return {
        f"{name}collapses": int(counts.sum()), f"{name}share": share.estimate,
        f"{name}share_low": share.low, f"{name}share_high": share.high,
    }  # fmt: skip


def sign_p(more: int, fewer: int) -> float:
    """Return the two-sided p of the sign test: a split this uneven of the pairs that differ, if both are equally
    likely."""
    return min(1.0, 2 * float(special.bdtr(min(more, fewer), more + fewer, 0.5))) if more + fewer else 1.0
