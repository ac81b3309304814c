"""The figures of each whole path: round-trip times as in the papers' tables, losses, duplicates, reordering.

Round-trip times are those of the answered probes, late answers included; losses are counted separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sojourn.analysis.rows import Row
from sojourn.statistics.interval import Interval
from sojourn.statistics.proportion import share_by_rounds
from sojourn.statistics.quantile import allowed, mean_by_rounds, quantiles_by_rounds, sd_by_rounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.analysis.path import PathInCell
    from sojourn.analysis.run import Run

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
ERROR_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
WITHIN_NS = {"pacing_within_1us": 1_000, "pacing_within_10us": 10_000}


def path_rows(run: Run) -> list[Row]:
    """Return the rows of every path."""
    rows: list[Row] = []
    for path in run.paths.values():
        for quantity in ("rtt", "rtt_intended", "rtt_user"):
            rows += _times(run, path, quantity)
        rows += _counts(run, path)
        if run.cells[path.cell].schedule != "closed-loop":
            rows += _departures(run, path)
    return rows


def _times(run: Run, path: PathInCell, quantity: str) -> list[Row]:
    values, rounds = path.answered(quantity)
    if not len(values):
        return []
    figures = {"min": _bare(float(values.min()), rounds), "mean": mean_by_rounds(values, rounds)}
    wanted = {name: p for name, p in QUANTILES.items() if allowed(p, len(values))}
    figures |= quantiles_by_rounds(values, rounds, wanted)
    figures |= {"max": _bare(float(values.max()), rounds), "sd": sd_by_rounds(values, rounds)}
    factors = run.cells[path.cell]
    return [
        Row(path.device, quantity, name, value, "ns", None, factors, path.cell, len(values), sessions=path.sessions)
        for name, value in figures.items()
    ]


def _counts(run: Run, path: PathInCell) -> list[Row]:
    probes = path.probes("replies", "reordered", "late")
    replies = probes["replies"].to_numpy()
    counted = {
        "loss": replies == 0,
        "duplicated": replies > 1,
        "reordered": probes["reordered"].to_numpy(),
        "late": probes["late"].to_numpy(),
    }
    rounds = path.clusters
    return [
        Row(
            path.device,
            quantity,
            "ratio",
            share_by_rounds(are, rounds),
            "1",
            None,
            run.cells[path.cell],
            path.cell,
            probes.height,
            sessions=path.sessions,
        )
        for quantity, are in counted.items()
    ]


def _departures(run: Run, path: PathInCell) -> list[Row]:
    """Return the pacing errors of probes, by the sender's own timestamps."""
    frame = path.probes("departure_ns", "intended_ns")
    errors = np.abs((frame["departure_ns"] - frame["intended_ns"]).cast(float).to_numpy())
    rounds = path.clusters
    return error_rows(
        Row(path.device, "", "", _bare(0.0, rounds), "", None, run.cells[path.cell], path.cell, sessions=path.sessions),
        errors,
        rounds,
    )


def error_rows(like: Row, errors: NDArray[np.float64], rounds: NDArray[np.int64]) -> list[Row]:
    """Return pacing errors (absolute, ns) as rows with the factors of `like`: quantiles, maximum, shares within
    bounds."""
    n = len(errors)
    if not n:
        return []
    quantiles = quantiles_by_rounds(errors, rounds, {name: p for name, p in ERROR_QUANTILES.items() if allowed(p, n)})
    figures = [("pacing_error", name, value, "ns") for name, value in quantiles.items()]
    figures.append(("pacing_error", "max", _bare(float(errors.max()), rounds), "ns"))
    for quantity, bound in WITHIN_NS.items():
        figures.append((quantity, "ratio", share_by_rounds(errors <= bound, rounds), "1"))
    return [
        Row(like.device, quantity, name, value, unit, None, like.factors, like.cell, n, sessions=like.sessions)
        for quantity, name, value, unit in figures
    ]


def _bare(value: float, rounds: NDArray[np.int64]) -> Interval:
    """Return a figure without an interval: an extreme."""
    return Interval(value, None, None, 0.95, int(rounds.max()) + 1 if len(rounds) else 0)
