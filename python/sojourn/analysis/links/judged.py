"""Answers to laws that foretell a figure: what was measured, with its interval, against what is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.analysis.laws import Answer

if TYPE_CHECKING:
    from sojourn.statistics.interval import Interval


def cannot(law: str, why: str, device: str | None = None, probe: str | None = None) -> Answer:
    """The answer where nothing was measured that could tell."""
    return Answer(law, "cannot tell", why, device, probe)


def against(shown: Interval, expected: float, margin: float) -> str:
    """Whether a figure is what a law foretells: its whole interval within the margin, or beyond it, or neither."""
    if shown.low is None or shown.high is None:
        return "cannot tell"
    if shown.low >= expected - margin and shown.high <= expected + margin:
        return "holds"
    return "fails" if shown.low > expected + margin or shown.high < expected - margin else "cannot tell"
