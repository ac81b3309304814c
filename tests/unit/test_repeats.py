"""Cells of a tapped run that stand out: which are repeated while measuring, and what is said of them afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.factors import Factors
from sojourn.conduct.repeats import LEAST_CELLS, Standing, alike, standing_out
from sojourn.methods.taps.analyse import mean_of
from sojourn.methods.taps.analyse.repeats import Repeated, anomalous, repeated_cells
from sojourn.plan import load_plan
from sojourn.plan.trials import stream_cells

CELLS = dict(enumerate(stream_cells(load_plan("bridge-modes"))))
"""Four rates of 64 bytes of user data, then ten of 1,472."""


def means(seed: int, **more: float) -> dict[tuple[str, int], list[float]]:
    """The delays of a session: the bridge 1.3 us over the redirect's 0.9, HTB 0.8 us more, and in some cells more."""
    rng = np.random.default_rng(seed)
    level = {"wire": 900.0, "bridge": 1_300.0, "bridge:qos": 2_100.0}
    return {
        (device, cell): (ns + more.get(f"{device} {cell}", 0.0) + rng.normal(0, 40, 6)).tolist()
        for device, ns in level.items()
        for cell in CELLS
    }


def test_outlying_cell_is_detected_among_cells_of_its_size() -> None:
    for seed in range(20):
        found = standing_out(means(seed, **{"bridge:qos 2": 1_500.0}), CELLS)
        assert [one[:3] for one in found] == [("bridge:qos", "bridge", 2)]
        assert found[0].by_ns == pytest.approx(1_500, abs=150)
        assert standing_out(means(seed), CELLS) == []


def test_small_difference_between_bridge_and_redirect_is_no_outlier() -> None:
    (one,) = standing_out(means(1, **{"bridge 5": -800.0, "bridge:qos 5": -800.0}), CELLS)
    assert isinstance(one, Standing)
    assert one[:3] == ("bridge", "wire", 5)
    assert standing_out(means(2, **{"bridge:qos 2": 200.0}), CELLS) == [], "less than a quarter of the bridge's delay"
    few = {place: value for place, value in means(3, **{"bridge:qos 1": 5_000.0}).items() if place[1] in (0, 1)}
    assert standing_out(few, CELLS) == [], "of two cells neither is an outlier"


MORE_NS = 1_500.0


def repeated(again_ns: float, *, sessions: int = 6, odd_in: int | None = None, seed: int = 4) -> list[Repeated]:
    """A run where HTB takes 1.5 us more in a cell, on all beds or so many, and so much more when that is repeated."""
    rng = np.random.default_rng(seed)
    rows, log, block = [], [], 0
    for session in range(sessions):
        odd = MORE_NS if session < (sessions if odd_in is None else odd_in) else 0.0
        for (device, cell), values in means(session, **{"bridge:qos 2": odd}).items():
            rows += [(device, cell, session, value) for value in values]
        if not odd:
            continue
        blocks: dict[str, list[int]] = {"bridge:qos": [], "bridge": []}
        for device, level in (("bridge:qos", 2_100.0 + again_ns), ("bridge", 1_300.0)) * 4:
            delay = {"n": 50, "mean_ns": level + rng.normal(0, 60)}
            ways = [{"direction": "forward", "delay": delay, "counts": {}}]
            log.append({"event": "taps", "block": block, "matched": {"pairs": [{"directions": ways}]}})
            blocks[device].append(block)
            block += 1
        log.append({"event": "repeated", "part": session, "device": "bridge:qos", "reference": "bridge", "cell": 2,
                    "by_ns": odd, "of_device": blocks["bridge:qos"], "of_reference": blocks["bridge"]})  # fmt: skip
    schema = {"device": pl.String, "cell": pl.Int32, "session": pl.Int32, "mean": pl.Float64}
    factors = {cell: Factors(probe="packet", frame_bytes=one.frame_bytes) for cell, one in CELLS.items()}
    run: Any = SimpleNamespace(log=log, cells=factors, sessions=sessions)
    return repeated_cells(run, pl.DataFrame(rows, schema=schema, orient="row"), mean_of)


@pytest.mark.parametrize(("again_ns", "persists", "said"), [(MORE_NS, True, "it persists: 1.5"),
                                                            (0.0, False, "it does not persist: "),
                                                            (-MORE_NS, False, "it does not persist: ")])  # fmt: skip
def test_cell_outlying_on_all_beds_is_a_finding_stating_persistence(again_ns: float, persists: bool, said: str) -> None:
    (one,) = repeated(again_ns)
    assert one.is_anomalous
    assert one.persists is persists
    assert one.rounds.estimate == pytest.approx(MORE_NS, rel=0.05)
    assert one.again.estimate == pytest.approx(again_ns, abs=80)
    (finding,) = anomalous([one])
    assert finding.name == "anomalous_cell"
    assert "repeated by itself on 6 of 6 beds" in finding.sentence
    assert said in finding.sentence
    assert [(place.device, place.cell) for place in finding.places] == [("bridge:qos", 2)]


def test_outlier_on_only_one_bed_is_no_finding() -> None:
    (one,) = repeated(0.0, odd_in=1)
    assert not one.is_anomalous
    assert anomalous([one]) == []


@pytest.mark.parametrize("quick", [False, True])
def test_study_has_enough_rates_per_size_to_detect_outliers(quick: bool) -> None:
    cells = dict(enumerate(stream_cells(load_plan("bridge-modes", quick=quick))))
    groups = alike(cells)
    assert sorted(factors.payload_bytes for factors in groups) == [64, 1472]
    assert all(len(several) >= LEAST_CELLS for several in groups.values())


def test_run_without_repeats_has_no_finding() -> None:
    assert repeated(0.0, odd_in=0) == []
    assert anomalous([]) == []
