"""What is read of a run's plan: its shape, declared once. A run may be somebody else's, and so is its plan then.

The left side reads plans whole, with a reader for each key (`plan`); here are the keys that analysis and report read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sojourn.errors import RequestError
from sojourn.records.shape import COUNT, FLAG, NUMBER, TABLE, TEXT, Kind, misfit, within

if TYPE_CHECKING:
    from pathlib import Path

SOME: Final = Kind("a number from 1 on", within(1, 1_000_000))

PLAN: Final[dict[str, Any]] = {
    "study": {
        **dict.fromkeys(("name", "title", "question", "paper", "method", "until"), TEXT),
        "hypotheses": [TEXT], "published": [TEXT],
    },
    "bed": {"devices": [TEXT], "sessions": SOME, "mtu": COUNT, "backend": TEXT, "twins": FLAG, "boxes": TABLE},
    "probe": {"probe": [TEXT]},
    "pairs": {"rounds": COUNT, "reference": TEXT},
    "trials": {"rounds": COUNT},
    "variance": {"factors": [TEXT], "starts": SOME},
    "short": {"rounds": COUNT},
    "windows": {"rounds": COUNT, "start_up": TEXT, "duration": TEXT, "congestion": TEXT},
    "load": {"rounds": COUNT, "idle": TEXT, "start_up": TEXT, "duration": TEXT},
    "perturbation": {"rounds": COUNT, "skip": TEXT},
    "search": {"goals": [NUMBER], "duration": TEXT, "duration_sum": TEXT, "exceed_ratio": NUMBER},
    **dict.fromkeys(("stream", "emulate", "costs", "truth", "model", "taps", "limits", "departures"), TABLE),
}  # fmt: skip
"""By section, the keys and what their values are; other sections and keys may be anything."""


def require_plan(tables: dict[str, Any], path: Path) -> dict[str, Any]:
    """The plan. Raises RequestError where what is read of it is of another shape."""
    if (said := misfit(tables, PLAN)) is not None:
        raise RequestError(f"{path} is damaged: {said}")
    return tables
