"""What is read of a run's plan: its shape, declared once. A run may be somebody else's, and so is its plan then.

The left side reads plans whole, with a reader for each key (`plan`); here are the keys that analysis and report read.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

from sojourn.errors import RequestError
from sojourn.records.decode import text_of
from sojourn.records.earlier import read_toml
from sojourn.records.shape import COUNT, FLAG, NUMBER, TABLE, TEXT, Kind, misfit, within

if TYPE_CHECKING:
    from pathlib import Path

SOME: Final = Kind("a number from 1 on", within(1, 1_000_000))

PLAN: Final[dict[str, Any]] = {
    "study": {
        **dict.fromkeys(("name", "title", "question", "paper", "method", "until"), TEXT),
        "hypotheses": [TEXT], "published": [TEXT],
    },
    "bed": {
        "devices": [TEXT], "sessions": SOME, "mtu": COUNT, "far": COUNT, "backend": TEXT, "twins": FLAG, "boxes": TABLE,
    },
    "probe": {"probe": [TEXT]},
    "pairs": {"rounds": COUNT, "reference": TEXT},
    "trials": {"rounds": COUNT, "grace": TEXT, "grace_ends": TEXT},
    "variance": {"factors": [TEXT], "starts": SOME},
    "short": {"rounds": COUNT},
    "windows": {
        "rounds": COUNT,
        **dict.fromkeys(("start_up", "duration", "congestion", "idle", "train", "train_interval"), TEXT),
    },
    "load": {
        "rounds": COUNT, "beside": [TEXT],
        **dict.fromkeys(("idle", "start_up", "duration", "join", "read_every"), TEXT),
    },
    "costs": {
        "repetitions": COUNT, "a_a": FLAG, "path": [TEXT], "where": [TEXT], "controls": [TEXT],
        "packets_per_log": [COUNT], "where_flows": [COUNT], "flows": [COUNT],
    },
    "perturbation": {"rounds": COUNT, "skip": TEXT},
    "search": {
        "goals": [NUMBER], "tests": [TEXT], "loss_step": NUMBER, "exceed_ratio": NUMBER,
        **dict.fromkeys(("duration", "duration_sum", "burst"), TEXT),
    },
    **dict.fromkeys(("stream", "emulate", "truth", "model", "taps", "limits", "departures"), TABLE),
}  # fmt: skip
"""By section, the keys and what their values are; other sections and keys may be anything."""


def read_run_plan(path: Path) -> dict[str, Any]:
    """Return the tables of a run's plan.toml. Raises FileNotFoundError without one, RequestError if it is damaged."""
    try:
        tables = read_toml(text_of(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error
    return require_plan(tables, path)


def require_plan(tables: dict[str, Any], path: Path) -> dict[str, Any]:
    """The plan. Raises RequestError where what is read of it is of another shape."""
    if (said := misfit(tables, PLAN)) is not None:
        raise RequestError(f"{path} is damaged: {said}")
    return tables
