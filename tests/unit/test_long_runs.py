"""Figures of runs with more bytes and packets than 32 bits count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from sojourn.analysis import crossings, stream_rows


def test_throughput_of_a_slice_with_more_than_a_quarter_of_a_gigabyte_is_right() -> None:
    frames, length = 10_000, 64_000
    some = pl.DataFrame(
        {"elapsed_s": np.zeros(frames), "delay": np.full(frames, 1000.0), "length_bytes": np.full(frames, length)},
        schema_overrides={"length_bytes": pl.Int32},
    )
    found = crossings.density(some, 0.5)
    assert found["rate_low_bps"].to_list() == [8 * (length + 4) * frames / 0.5 * 0.9]


def test_packets_of_trials_of_thousands_of_millions_are_counted() -> None:
    values, weights = np.array([1.0, 2.0]), np.array([3_000_000_000, 2_000_000_000])
    trial: Any = SimpleNamespace(
        port=0, node=0, lost=[0], clock_bound_ns=0.0, clock_error95_ns=0.0,
        bins=lambda: [(0, 1, values, weights), (0, 2, values, weights)],
    )  # fmt: skip
    place = {"device": "direct", "cell": 0, "round": 0, "visit": 0, "session": 0}
    flows = pl.DataFrame([{"block": 1, **place}, {"block": 2, **place}], schema_overrides={"block": pl.Int32})
    found = stream_rows.binned_summaries([trial], flows)
    assert found["packets"].to_list() == [5_000_000_000] * 2
    assert int(found["packets"].sum()) == 10_000_000_000
