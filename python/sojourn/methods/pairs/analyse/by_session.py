"""The results of each session over each path: the median round trip, and the share of round trips in each mode.

Modes are those of all sessions together, aligned where the fastest mode of each begins (`shape`); a round trip belongs
to the nearest mode. A path with one mode has all of its round trips in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sojourn.analysis.samples import Sample, shared
from sojourn.methods.pairs.analyse.shape import LEAST_FOR_MODES
from sojourn.statistics.modes import find_modes

if TYPE_CHECKING:
    from sojourn.analysis.path import PathInCell
    from sojourn.analysis.run import Run

SESSION_PATHS = Sample(
    "A mode of the round trips of a session over a path in a cell.",
    {
        "session": (pl.Int64, "The part of the run, and so the bed."),
        **shared("device cell"),
        "probes": (pl.Int64, "Round trips of the session."),
        "median_ns": (pl.Float64, "Their median."),
        "mode": (pl.Int64, "The mode, from 1, the fastest."),
        "mode_ns": (pl.Float64, "The round trip of the mode."),
        "share": (pl.Float64, "The share of the session's round trips in the mode."),
    },
)


def session_paths(run: Run) -> pl.DataFrame:
    """Return each session's median and shares of modes."""
    found = [pl.DataFrame(schema=SESSION_PATHS.own), *(_of_path(path) for path in run.paths.values())]
    return pl.concat(found).sort("session", maintain_order=True)


def _of_path(path: PathInCell) -> pl.DataFrame:
    laid = path.laid()
    values = laid.values
    if not len(values):
        return pl.DataFrame(schema=SESSION_PATHS.own)
    modes = find_modes(values) if len(values) >= LEAST_FOR_MODES else [float(np.median(values))]
    at = laid.above_foot + laid.shift
    borders = (np.array(modes[:-1]) + np.array(modes[1:])) / 2
    probes = laid.probes.select(
        "rtt",
        session=pl.col("part").cast(pl.Int64),
        own=pl.Series(np.digitize(at, borders)),
    )
    rows = [
        (session, path.device, path.cell, own.height, own["rtt"].median(), mode + 1, place, (own["own"] == mode).mean())
        for (session,), own in sorted(probes.partition_by("session", as_dict=True).items())
        for mode, place in enumerate(modes)
    ]
    return pl.DataFrame(rows, schema=SESSION_PATHS.own, orient="row")
