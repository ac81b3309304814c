"""The figures of a load over a grid of pipes: every rate with every delay and queue, where a plan has them all."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import polars as pl

from sojourn.analysis.rows import LoadSetting
from sojourn.analysis.samples import Sample, shared
from sojourn.methods.tcp_load.analyse.hypotheses import FULL_FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.analysis.rows import Row
    from sojourn.methods.tcp_load.analyse.hypotheses import Pipe

AXES = ("rate_bps", "delay_ns", "queue_packets")
QUANTITIES = {"latency": "rtt_increase", "goodput": "goodput", "utilisation": "utilisation"}
GRID = Sample(
    "A figure through a pipe, where the plan has every rate with every delay and queue.",
    {
        **shared("device flows congestion direction"),
        "what": (pl.String, "latency (under load, ns), goodput (bit/s), utilisation (a share)."),
        "rate_bps": (pl.Float64, "The rate of the pipe."),
        "delay_ns": (pl.Float64, "The round trip of the idle path."),
        "queue_packets": (pl.Float64, "Its queue in full packets."),
        **shared("estimate ci_low ci_high"),
    },
)


def grid_of(rows: Sequence[Row], pipes: Mapping[str, Pipe]) -> pl.DataFrame:
    """Latency under load, goodput and utilisation of each cell; nothing where the pipes are no grid of two axes."""
    places = {words: place_of(pipe) for words, pipe in pipes.items() if not pipe.loss}
    values = [sorted(set(axis)) for axis in zip(*places.values(), strict=True)]
    is_whole = set(places.values()) == set(product(*values)) and len(places) == len(set(places.values()))
    if not places or not is_whole or sum(len(axis) > 1 for axis in values) < 2:
        return pl.DataFrame(schema=GRID.own)
    found = []
    for row in rows:
        what = next((name for name, quantity in QUANTITIES.items() if quantity == row.quantity), None)
        own, place = row.setting, places.get(str(row.factors.pipe))
        if what is None or place is None or row.cell is None or type(own) is not LoadSetting:
            continue
        if own.background or own.round_trips:
            continue
        if row.statistic in ("mean", "down", "up"):
            way = own.direction if row.statistic == "mean" else row.statistic
            found.append((row.device, own.flows, own.congestion, way, what, *place, row.value.estimate, row.value.low,
                          row.value.high))  # fmt: skip
    return pl.DataFrame(found, schema=GRID.own, orient="row")


def place_of(pipe: Pipe) -> tuple[float, float, float]:
    """Where a pipe lies on the axes; its queue in full packets."""
    return pipe.rate_bps, pipe.round_trip_s * 1e9, round(pipe.queue_bytes / FULL_FRAME_BYTES, 1)
