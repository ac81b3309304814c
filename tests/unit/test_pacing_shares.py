"""The interval of `pacing_within_…`, from records to results: it is of trials that differ, not of departures.

A trial's share of departures on time is drawn anew for each block; what is true is the mean of what it is drawn from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from sojourn.analysis import analyse
from sojourn.records import RunFolder
from tests.unit.synthetic_streams import StreamRun, Trial, cell

if TYPE_CHECKING:
    from pathlib import Path

Make = Callable[..., Any]
SHAPE = (14.0, 6.0)
TRUTH = SHAPE[0] / sum(SHAPE)
ON_TIME_NS, LATE_NS = 600, 5_000
WIDER = 2.5
"""Than an interval of all departures, as if each were by itself: what 16 such trials of some hundred come to."""


def errors(rng: np.random.Generator, n: int) -> Any:
    return np.where(rng.random(n) < rng.beta(*SHAPE), ON_TIME_NS, LATE_NS)


def streams(folder: Path, synthetic: Make, seed: int) -> Path:
    """Two cells over the direct path, the A/A control and a bridge, eight rounds there and back."""
    del synthetic

    def departs(trial: Trial, rng: np.random.Generator) -> None:
        trial.departure = trial.intended + errors(rng, len(trial.intended))

    cells = [cell(), cell(frame_bytes=1518, payload_bytes=1500)]
    return StreamRun(folder / f"streams-{seed}", "one-way", cells, alter=departs, seed=seed).write()


def probes(folder: Path, synthetic: Make, seed: int) -> Path:
    """The same of round trips."""
    del folder

    def departs(block: Any, rows: Any, rng: np.random.Generator) -> None:
        del block
        later = rows["intended_ns"] + errors(rng, len(rows["intended_ns"])) - rows["departure_ns"]
        for name in ("send_call_ns", "departure_ns", "arrival_ns", "receive_call_ns"):
            rows[name] = rows[name] + later

    asked = {"rounds": 8, "count": 300, "icmp_bytes": (64, 1480)}
    path: Path = synthetic(latency_ns={"bridge": 1300.0}, alter=departs, seed=seed, **asked).write()
    return path


def shares(path: Path) -> list[dict[str, Any]]:
    """The rows of departures within 1 us, of each path and cell."""
    analyse(path)
    rows = json.loads(RunFolder(path).results.read_text())
    return [row for row in rows if row["quantity"] == "pacing_within_1us" and row["statistic"] == "ratio"]


@pytest.mark.parametrize("make", [streams, probes])
@pytest.mark.parametrize("runs", [3, pytest.param(60, marks=pytest.mark.proof)])
def test_interval_of_on_time_departures_is_over_trials_and_covers_the_truth(
    tmp_path: Path, synthetic: Make, make: Callable[[Path, Make, int], Path], runs: int
) -> None:
    found = [row for seed in range(1, runs + 1) for row in shares(make(tmp_path, synthetic, seed))]
    assert len(found) >= 4 * runs, "a row for each path and cell of each run"
    held, narrow_held, wider = [], [], []
    for row in found:
        low, high = row["ci_low"], row["ci_high"]
        n = row["probes"]
        of_departures = stats.binomtest(round(row["estimate"] * n), n).proportion_ci(0.95, "exact")
        assert row["level"] == 0.95
        assert low < row["estimate"] < high
        wider.append((high - low) / (of_departures.high - of_departures.low))
        held.append(low <= TRUTH <= high)
        narrow_held.append(of_departures.low <= TRUTH <= of_departures.high)
    print(f"{len(found)} intervals hold {np.mean(held):.3f}, those of all departures {np.mean(narrow_held):.3f}")
    print(f"they are {min(wider):.1f} to {max(wider):.1f} times as wide, {np.median(wider):.1f} in the middle")
    assert min(wider) > 1
    assert np.median(wider) > WIDER
    assert np.mean(held) >= stats.binom.ppf(0.001, len(found), 0.95) / len(found)
    if runs > 10:
        assert np.mean(narrow_held) < 0.6, "or these trials do not show the difference"
