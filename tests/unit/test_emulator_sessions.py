"""An emulator over several beds: each bed's delays against its own direct path, and intervals over beds."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.methods.emulator.analyse import delay
from sojourn.methods.emulator.analyse.pipe import Pipe
from sojourn.methods.emulator.analyse.seen import Seen, parts_of

BEDS, ROUNDS, PACKETS = 5, 4, 30
CONFIGURED, LATE = 5_000_000.0, 4_000.0
SEED = 20031205


def packets(rng: np.random.Generator, level: Any) -> pl.DataFrame:
    """Delays of every bed, round and packet, about a level of each bed."""
    at = np.indices((BEDS, ROUNDS, PACKETS)).reshape(3, -1)
    return pl.DataFrame({
        "block": at[0] * ROUNDS + at[1], "flow": 1, "seq": at[2], "session": at[0].astype(np.int32), "round": at[1],
        "delay_ns": level[at[0]] + rng.normal(0, 500, at.shape[1]),
    })  # fmt: skip


def seen(rng: np.random.Generator) -> Seen:
    """Beds whose direct paths differ by 10 us, and whose emulators are late by 1 us more or less."""
    floor = 20_000 + rng.normal(0, 10_000, BEDS)
    own = packets(rng, CONFIGURED + LATE + floor + rng.normal(0, 1_000, BEDS))
    told = {"offered_pps": [1000.0], "frame_bytes": [102], "schedule": ["regular"], "local_drops": [0]}
    return Seen(
        "emulate", 0, "delay 5ms", Pipe({"delay": {"constant": int(CONFIGURED)}}), [1], pl.DataFrame(),
        pl.DataFrame(told), own, packets(rng, floor), pl.DataFrame(),
    )  # fmt: skip


def test_delays_are_relative_to_the_direct_path_of_the_same_bed() -> None:
    found = seen(np.random.default_rng(SEED))
    over = found.over_floor(found.packets)["over_ns"].to_numpy() - CONFIGURED
    assert over.std() < 3_000 < found.packets["delay_ns"].to_numpy().std()
    errors = found.outside["error_ns"].to_numpy()
    assert np.median(errors) == pytest.approx(LATE, abs=2_000)
    assert len(np.unique(parts_of(found.outside))) == BEDS


def test_interval_of_the_mean_error_over_beds_covers_the_truth() -> None:
    rng = np.random.default_rng(SEED)
    found = [delay.mean_over_floor(seen(rng), 0.05) for _ in range(200)]
    assert {one.n for one in found} == {BEDS * ROUNDS}
    held = 1 - sum(one.excludes(CONFIGURED + LATE) for one in found) / len(found)
    print(f"seed {SEED}: {held:.3f} hold the truth")
    assert 0.92 <= held <= 0.99
    figure = delay.figure_over_floor(seen(rng), 0.05)
    assert figure is not None
    assert figure.between is not None
    assert figure.between.estimate == pytest.approx(1_000, abs=900)
