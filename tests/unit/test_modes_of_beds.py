"""Beds in which a slower mode has other shares: its place and its shares are found, and no mode is made of the beds."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.finding import Place
from sojourn.analysis.packets import Values
from sojourn.analysis.path import PathInCell
from sojourn.methods.pairs.analyse.shape import _modes_apart
from sojourn.statistics.modes import find_modes

GAP = 3000.0
BEDS, ROUNDS, PROBES = 6, 8, 100


def delays(rng: np.random.Generator, share: float, count: int, level: float = 8000.0) -> np.ndarray[Any, Any]:
    return level + rng.gamma(4, 100, count) + GAP * (rng.random(count) < share)


def a_run(shares: dict[str, list[float]]) -> Any:
    """A run whose paths meet the slower mode with these shares, bed by bed; each bed has a level of its own."""
    rng = np.random.default_rng(3)
    frames = []
    for device, of_beds in shares.items():
        for bed in range(BEDS):
            level = 8000 + 400 * bed + (2600 if device == "bridge" else 0)
            for number in range(ROUNDS):
                rtt = delays(rng, of_beds[bed % len(of_beds)], PROBES, level)
                frames.append(pl.DataFrame({"rtt": rtt.astype(np.int64)}).with_columns(
                    device=pl.lit(device), cell=pl.lit(0), part=pl.lit(bed), instance=pl.lit(1),
                    round=pl.lit(bed * ROUNDS + number)))  # fmt: skip
    run: Any = SimpleNamespace(measured=pl.concat(frames), sessions=BEDS, devices=list(shares), cells={0: None})
    rows = {one: (run.measured["device"] == one).arg_true() for one in shares}
    run.paths = {(one, 0): PathInCell(one, 0, run, rows[one]) for one in shares}
    return run


@pytest.mark.parametrize(("direct", "bridge"), [(0.1, 0.85), (0.2, 0.8), (0.1, 0.5), (0.5, 0.1)])
def test_shares_that_differ_are_found_with_their_size(direct: float, bridge: float) -> None:
    run = a_run({"direct": [direct], "bridge": [bridge]})
    modes = {Place(path.device, 0): find_modes(path.laid().values) for path in run.paths.values()}
    assert all(two[1] - two[0] == pytest.approx(GAP, rel=0.1) for two in modes.values())
    (found,) = _modes_apart(run, modes, 100.0)
    assert found.value == pytest.approx(abs(bridge - direct) * GAP / 2, rel=0.15)
    told = [int(share) for share in re.findall(r"(\d+)\s%", found.sentence)]
    assert told == pytest.approx([100 * bridge, 100 * direct], abs=2)


def test_equal_shares_do_not_differ_significantly() -> None:
    run = a_run({"direct": [0.4, 0.6], "bridge": [0.4, 0.6]})
    modes = {Place("direct", 0): find_modes(run.paths["direct", 0].laid().values)}
    assert not list(_modes_apart(run, modes, 100.0))


def test_shares_around_one_half_create_no_third_mode() -> None:
    rng = np.random.default_rng(9)
    values = np.concatenate([delays(rng, 0.4 if bed % 2 else 0.6, 800, 8000 + 300 * bed) for bed in range(BEDS)])
    trials = np.repeat(np.arange(BEDS), 800).astype(np.int64)
    blocks, session = np.arange(BEDS, dtype=np.int64), np.arange(BEDS, dtype=np.int64)
    one = Values("bridge", 0, 0, 0, "actual", values, None, trials, blocks, np.zeros(BEDS, np.int64), sessions=session)
    modes = find_modes(one.within_sessions())
    assert len(modes) == 2
    assert modes[1] - modes[0] == pytest.approx(GAP, rel=0.1)
