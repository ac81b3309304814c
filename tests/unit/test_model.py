"""The queueing model on whole run folders: M/D/1 behind a floor, trained at some loads, held to the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.factors import factors_of_stream
from sojourn.methods.model.analyse import Model, fit_group, parameters, training_cells
from sojourn.statistics.queue import Passage, Server, predict, waits, waits_with_room
from tests.unit import made_up_streams as made_up

if TYPE_CHECKING:
    from pathlib import Path

PLAN = '[study]\nname = "model"\nmethod = "model"\n[bed]\nbackend = "netns"\ndevices = ["bridge"]\n'
START = 1_795_000_000_000_000_000
FRAMES = 2_500
LOADS = [("regular", 1_000_000), ("poisson", 20_000), ("poisson", 16_000), ("poisson", 12_500), ("regular", 11_000)]
SERVICE = {64: 8_000.0, 1518: 10_000.0}
FLOOR = 15_000.0


def cells() -> list[dict[str, Any]]:
    return [
        made_up.factors(schedule=schedule, interval_ns=interval, rate_pps=1e9 / interval, frame_bytes=size)
        for size in SERVICE
        for schedule, interval in LOADS
    ]


def run(path: Path, rounds: int = 6, spoilt: bool = False) -> Path:
    """One device; `spoilt`: its service doubles at a load that is held out, which no model can know."""
    rng = np.random.default_rng(7)
    blocks: list[dict[str, Any]] = []
    sends, arrivals, log = [], [], []
    for round_ in range(rounds):
        for cell, told in enumerate(cells()):
            block = {"block": len(blocks), "device": "bridge", "round": round_, "cell": cell}
            slow = 1.35 if spoilt and cell == 2 else 1.0
            blocks.append(block)
            log.append(made_up.trial_event(block, told))
            sent, arrived = trial(block, told, slow, rng)
            sends.append(sent)
            arrivals.append(arrived)
    tables = {
        ("streams", "a"): made_up.streams(blocks),
        ("streams", "b"): made_up.streams(blocks, "receive"),
        ("sends", "a"): pl.concat(sends),
        ("arrivals", "b"): pl.concat(arrivals),
    }
    return made_up.write(path, PLAN, log, tables)


def trial(
    block: dict[str, Any], told: dict[str, Any], slow: float, rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    interval = told["interval_ns"]
    gaps = rng.exponential(interval, FRAMES) if told["schedule"] == "poisson" else np.full(FRAMES, float(interval))
    entered = np.cumsum(gaps)
    service = np.full(FRAMES, SERVICE[told["frame_bytes"]] * slow)
    delay = waits(entered, service) + service + FLOOR + rng.gamma(4, 150, FRAMES)
    intended = START + block["block"] * 10**10 + entered.astype(np.int64)
    arrival = intended + delay.astype(np.int64)
    head = {"block": block["block"], "flow": 1, "seq": np.arange(FRAMES)}
    sent = {"intended_ns": intended, "send_call_ns": intended + 100, "departure_ns": intended + 500}
    arrived = {"port": 0, "node": 0, "arrival_ns": arrival, "receive_call_ns": arrival + 900}
    return pl.DataFrame(head | sent), pl.DataFrame(head | arrived)


def test_model_is_fitted_to_every_second_poisson_load_and_the_lowest() -> None:
    told = {cell: factors_of_stream(one) for cell, one in enumerate(cells()[:5])}
    assert training_cells(told) == [0, 1, 3]
    assert training_cells(told, [4, 0]) == [0, 4]


def test_parameters_are_recovered_and_held_out_loads_predicted(tmp_path: Path) -> None:
    verdict = analyse(path := run(tmp_path / "run"))
    rows = json.loads((path / "analysis/results.json").read_text())
    by_size = {row["frame_bytes"]: row for row in rows if row["quantity"] == "model_service"}
    for size, service in SERVICE.items():
        assert by_size[size]["estimate"] == pytest.approx(service, rel=0.01)
        assert by_size[size]["ci_low"] * 0.995 <= service <= by_size[size]["ci_high"] * 1.005
    slope = next(row for row in rows if row["quantity"] == "model_service_slope")
    assert slope["estimate"] == pytest.approx(2_000 / (1518 - 64), rel=0.1)
    distances = pl.read_parquet(path / "analysis/samples/model_distances.parquet")
    held_out = distances.filter(~pl.col("training"))
    assert sorted(held_out["cell"].unique().to_list()) == [2, 4, 7, 9]
    wide = held_out.pivot("what", index=["cell", "distance"], values="estimate")
    assert (wide["prediction"] < 1.5 * wide["repetition"]).all()
    poisson = wide.filter(pl.col("cell").is_in([2, 7]))
    assert (poisson["prediction"] < poisson["no-queue"] / 3).all()
    assert held_out.drop_nulls("ci_low").height == held_out.height
    assert not [one for one in verdict.findings if one["name"] == "model_misfit"]
    assert "4 held-out loads" in verdict.sentence


def test_histograms_contain_every_frame_except_the_slowest(tmp_path: Path) -> None:
    analyse(path := run(tmp_path / "run", rounds=2))
    bins = pl.read_parquet(path / "analysis/samples/model_histograms.parquet")
    shares = bins.group_by("cell", "what").agg(pl.col("share").sum())
    assert (shares.filter(pl.col("what") != "no-queue")["share"] > 0.98).all()
    assert {"measured", "predicted", "no-queue"} == set(bins["what"])


def test_load_outside_the_model_is_reported_as_misfit(tmp_path: Path) -> None:
    verdict = analyse(run(tmp_path / "run", rounds=5, spoilt=True))
    found = [one for one in verdict.findings if one["name"] == "model_misfit"]
    assert len(found) == 1
    assert {place["cell"] for place in found[0]["places"]} == {2}


def test_finite_queue_model_predicts_the_loss() -> None:
    """Loads beyond the capacity are predicted with their losses, from the room that training loads betrayed."""
    room, rng = 40, np.random.default_rng(3)

    def passage(interval: float) -> Passage:
        entered = np.cumsum(rng.exponential(interval, 6_000))
        service = np.full(6_000, 10_000.0)
        delay = waits_with_room(entered, service, room) + service + FLOOR + rng.gamma(4, 150, 6_000)
        return Passage(entered, delay)

    training = [[passage(at) for _ in range(2)] for at in (1e6, 2e4, 1.25e4, 7e3)]
    server, base = fit_group(training)
    assert server.mean_ns == pytest.approx(10_000, rel=0.02)
    assert server.room == pytest.approx(room + 4, abs=4)
    real = passage(8e3)
    guess = predict(real.entered_ns, server, base, rng)
    assert np.mean(~np.isfinite(guess)) == pytest.approx(np.mean(~np.isfinite(real.delay_ns)), abs=0.02)
    assert np.quantile(guess, 0.5) == pytest.approx(np.quantile(real.delay_ns, 0.5), rel=0.1)


def test_capacity_has_no_interval_if_the_service_time_may_be_zero() -> None:
    """One session of a busy machine was slower by far: Student's interval of the service then begins below 0."""
    per_round = {name: np.repeat([5e3, 5e3, 5e3, 9e4], 2) for name in ("service", "fixed", "random", "floor")}
    per_round |= {"session": np.repeat(np.arange(4.0), 2), "round": np.arange(8.0)}
    factors = factors_of_stream(cells()[0])
    server = Server(fixed_ns=4e3, random_ns=1e3)
    model = Model("bridge", factors, server, np.ones(3), per_round, [])
    found = {name: value for name, _, value, _ in parameters(model)}
    assert found["model_service"].low == 0, "no service takes less than no time"
    capacity = found["model_capacity"]
    assert (capacity.estimate, capacity.low, capacity.high) == (2e5, None, None)
