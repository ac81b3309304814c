"""What flows of several algorithms that share a path get of it: shares of the goodput, and when they became fair.

An algorithm's place is its turn: the flows of the first fill the path before those of the others join. Judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.analysis.rates import jain
from sojourn.analysis.tcp_trials import arrived

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from numpy.typing import NDArray

    Times = NDArray[np.float64]

TURNS = ("first", "second", "third", "fourth")
"""What an algorithm's place is called in statistics."""

WINDOW_NS = 1e9
"""Over which goodputs are taken while flows converge: dozens of round trips, and ten readings."""

STEP_NS = 1e8
FAIR = 0.95
"""Jain's index from which flows are called fair: of two flows, from 38 % for the smaller on."""


def groups_of(entry: dict[str, Any], way: str) -> list[set[str]]:
    """The local ends of the flows of each algorithm that sends that way, in their turns."""
    flows = [flow for flow in entry["flows"] if flow["direction"] == way]
    turns = sorted({int(flow.get("turn", 0)) for flow in flows})
    return [{flow["local"] for flow in flows if int(flow.get("turn", 0)) == turn} for turn in turns]


def joined_ns(entry: dict[str, Any]) -> float:
    """When the flows of the last algorithm began."""
    begun: dict[int, float] = {}
    for flow in entry["flows"]:
        turn = int(flow.get("turn", 0))
        begun[turn] = min(begun.get(turn, float("inf")), float(flow["started_ns"]))
    return max(begun.values())


def begun_ns(entry: dict[str, Any]) -> float:
    """When the first flow of a trial began, measured or beside these: the path was idle before."""
    begun = [flow["started_ns"] for flow in entry["flows"]]
    for channel in entry.get("background") or ():
        begun += [one["started_ns"] for one in (channel.get("flows") or (channel,)) if one["started_ns"] is not None]
    return float(min(begun))


def shares_of(rates: dict[str, float], groups: Sequence[set[str]], way: str) -> dict[tuple[str, str], float]:
    """The share of each algorithm in the goodput of all; nothing where there is one algorithm.

    `rates` has every flow of the groups.
    """
    total = sum(rates.values())
    if len(groups) < 2 or not total:
        return {}
    return {
        ("share", f"{way} {TURNS[turn]}"): sum(rates[local] for local in group) / total
        for turn, group in enumerate(groups)
    }


def convergence_of(readings: pl.DataFrame, joined: float, end: float, way: str) -> dict[tuple[str, str], float]:
    """From the joining of the last flows to the end of the first second over which all were fair; whether they were.

    `readings` are of these flows alone, with their local ends as `local`.
    """
    at = np.arange(joined + WINDOW_NS, end + 1, STEP_NS)
    flows = [
        arrived_in_window(flow["read_after_ns"].to_numpy(), arrived(flow).to_numpy(), at)
        for flow in readings.drop_nulls("acked_bytes").sort("read_after_ns").partition_by("local")
    ]
    if not len(at) or len(flows) < 2:
        return {}
    fair = [when for when, bytes_ in zip(at, np.array(flows).T, strict=True) if bytes_.sum() and jain(bytes_) >= FAIR]
    found: dict[tuple[str, str], float] = {("converged", way): float(bool(fair))}
    return found | ({("convergence", way): fair[0] - joined} if fair else {})


def arrived_in_window(times: Times, came: Times, at: Times) -> Times:
    """What reached the receiver in the window that ends at each of these times, between readings in proportion."""
    until: Times = np.interp(at, times, came)
    since: Times = np.interp(at - WINDOW_NS, times, came)
    return until - since
