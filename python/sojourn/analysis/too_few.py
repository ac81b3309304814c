"""Figures without an interval because they are over too few beds, or over too few pairs of one bed.

The dispatcher calls it for every method, so that none omits it. The module hides which figures are over pairs; it does
not define intervals (`analysis.sessions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.finding import Finding, Place
from sojourn.analysis.leading import LEADING
from sojourn.analysis.wording import counted, percent
from sojourn.statistics.sessions import LEAST_SESSIONS
from sojourn.statistics.signed_rank import least_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.analysis.rows import Row

OF_PAIRS = {
    ("device_latency", "mean"): "pair",
    ("device_latency", "pooled"): "pair",
    ("throughput_ratio", "typical"): "pair",
    ("latency_under_load", "mean"): "round",
}
"""Figures judged by ranks on one bed, by quantity and statistic, and their unit."""


def too_few(rows: Sequence[Row], sessions: int) -> list[Finding]:
    """Return the finding, with every place it applies to; `sessions` is the number of beds in the plan.

    Where the plan requests enough beds, only leading figures raise it: a rare event (a run of lost frames) may occur on
    few of many beds, which is no reason for doubt.
    """
    short = [row for row in rows if row.value.low is None and _is_short(row, sessions)]
    if not short:
        return []
    worst = min(short, key=lambda row: (row.sessions or LEAST_SESSIONS, row.value.n))
    places = tuple(dict.fromkeys(Place(row.device, row.cell) for row in short))
    return [Finding("too_few_pairs", _said(worst), float(worst.value.n), places)]


def _is_short(row: Row, sessions: int) -> bool:
    if row.sessions is not None and row.sessions < LEAST_SESSIONS:
        return sessions < LEAST_SESSIONS or _kind(row) in LEADING
    return _kind(row) in OF_PAIRS


def _said(row: Row) -> str:
    if row.sessions is not None and row.sessions < LEAST_SESSIONS:
        return f"{row.sessions} beds are too few for an interval over beds: at least {LEAST_SESSIONS} are needed"
    several = counted(row.value.n, OF_PAIRS[_kind(row)])
    level = percent(row.value.level)
    if row.sessions is None:
        return f"{several} give no interval of {level}: at least {least_pairs(row.value.level)} are needed"
    return f"{several} on {row.sessions} beds give no interval of {level}: no bed has two, or all beds have one value"


def _kind(row: Row) -> tuple[str, str]:
    return row.quantity, row.statistic
