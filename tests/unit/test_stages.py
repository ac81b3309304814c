"""Latency breakdowns of made-up frames whose every stage is known: to the nanosecond, summed, missing ones named."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from tests.unit import made_up_streams as made_up

if TYPE_CHECKING:
    from pathlib import Path

PLAN = '[study]\nname = "stages"\nmethod = "stages"\n[bed]\nbackend = "netns"\ndevices = ["bridge"]\n'
STAGES = {"pacing": 300, "send": 900, "qdisc": 400, "path": 2_000, "receive": 1_500}
BRIDGE_ADDS = 1_250
START = 1_795_000_000_000_000_000
FRAMES = 200


ADDS = {"direct": 0, "a/a": 0, "wire": 1_000, "bridge": BRIDGE_ADDS}
"""What each path takes longer than the direct link, in the stage path."""


def run(path: Path, rounds: int = 8, paths: tuple[str, ...] = ("direct", "bridge"), **changes: Any) -> Path:
    """Every path, `rounds` times; every stage gamma about its mean; a path adds to the stage path alone."""
    rng = np.random.default_rng(1)
    blocks: list[dict[str, Any]] = []
    sends, arrivals = [], []
    for round_ in range(rounds):
        for device in paths:
            block = {"block": len(blocks), "device": device, "round": round_, "cell": 0}
            blocks.append(block)
            sent, arrived = trial(block, rng, **changes)
            sends.append(sent)
            arrivals.append(arrived)
    tables = {
        ("streams", "a"): made_up.streams(blocks),
        ("streams", "b"): made_up.streams(blocks, "receive"),
        ("sends", "a"): pl.concat(sends),
        ("arrivals", "b"): pl.concat(arrivals),
    }
    log = [made_up.trial_event(block, made_up.factors()) for block in blocks]
    return made_up.write(path, PLAN, log, tables)


def trial(
    block: dict[str, Any], rng: np.random.Generator, departure_source: str = "kernel", qdisc: bool = True,
    answered: bool = False,
    backwards: bool = False, held_ns: int | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:  # fmt: skip
    parts = {name: rng.gamma(4, mean / 4, FRAMES).astype(np.int64) for name, mean in STAGES.items()}
    parts["path"] += ADDS[block["device"]]
    stamps = (
        START
        + block["block"] * 10**9
        + np.arange(FRAMES) * 100_000
        + np.cumsum([0 * parts["send"], *parts.values()], 0)
    )
    intended, call, scheduled, departure, arrival, receive = stamps.astype(np.int64)
    scheduled += 5_000 if backwards else 0
    queued = scheduled.tolist() if qdisc else [None] * FRAMES
    if held_ns is not None:
        queued[FRAMES // 2] = None
        for later in (departure, arrival, receive):
            later[FRAMES // 2] += held_ns
    seq = np.arange(FRAMES)
    sent = pl.DataFrame(
        {
            "block": block["block"], "flow": 1, "seq": seq, "intended_ns": intended, "send_call_ns": call,
            "scheduled_ns": pl.Series(queued, dtype=pl.Int64),
            "departure_ns": departure, "departure_source": departure_source,
        }
    )  # fmt: skip
    arrived = pl.DataFrame(
        {
            "block": block["block"], "flow": 1, "seq": seq, "port": 0, "node": 0, "arrival_ns": arrival,
            "receive_call_ns": receive, "arrival_source": "kernel",
        }
    )  # fmt: skip
    if answered:
        back = arrived.with_columns(pl.lit(1).alias("node").cast(pl.Int32), pl.col("arrival_ns") + 9_000,
                                    pl.col("receive_call_ns") + 9_000)  # fmt: skip
        arrived = pl.concat([arrived, back], how="vertical_relaxed")
    return sent, arrived[1:]  # the first frame is lost


def results(path: Path) -> dict[tuple[str, str | None, str, str], dict[str, Any]]:
    rows = json.loads((path / "analysis/results.json").read_text())
    return {(row["device"], row["reference"], row["quantity"], row["statistic"]): row for row in rows}


def test_stage_delays_are_recovered_and_only_the_path_stage_contains_the_device(tmp_path: Path) -> None:
    path = run(tmp_path / "run")
    verdict = analyse(path)
    found = results(path)
    for name, mean in STAGES.items():
        assert found["direct", None, f"stage_{name}", "mean"]["estimate"] == pytest.approx(mean, rel=0.03)
        added = found["bridge", "direct", f"stage_{name}", "mean"]
        assert added["estimate"] == pytest.approx(BRIDGE_ADDS if name == "path" else 0, abs=70)
        assert added["ci_low"] <= (BRIDGE_ADDS if name == "path" else 0) <= added["ci_high"]
    assert found["bridge", None, "stage_path", "mean"]["clock_bound_ns"] == 0
    assert found["direct", None, "stage_total", "mean"]["probes"] == 8 * (FRAMES - 1)
    assert [(answer["hypothesis"], answer["outcome"]) for answer in verdict.hypotheses] == [("stages-sum", "supported")]
    assert "each of 3184 frames has every timestamp" in verdict.hypotheses[0]["sentence"]


def test_stages_over_the_wire_come_first_and_the_control_is_judged(tmp_path: Path) -> None:
    path = run(tmp_path / "run", paths=("direct", "a/a", "wire", "bridge"))
    verdict = analyse(path)
    found = results(path)
    for reference, truth in (("wire", BRIDGE_ADDS - 1_000), ("direct", BRIDGE_ADDS)):
        added = found["bridge", reference, "stage_path", "mean"]
        assert added["estimate"] == pytest.approx(truth, abs=70)
        assert added["ci_low"] <= truth <= added["ci_high"]
    over_wire = (
        r"^The Linux bridge adds 0\.2\d\d? µs .* to the stage path over the wire; over the direct link, 1\.[23] "
    )
    assert re.search(over_wire, verdict.sentence), verdict.sentence
    (budget,) = json.loads((path / "analysis/budgets.json").read_text())
    assert (budget["reference"], budget["estimate"]) == (
        "wire",
        found["bridge", "wire", "stage_path", "mean"]["estimate"],
    )
    assert found["a/a", "direct", "resolution", "pooled"]["estimate"] > 0
    assert "a_a_nonzero" not in {one["name"] for one in verdict.findings}
    sample = pl.read_parquet(path / "analysis/samples/latency_breakdown.parquet")
    pairs = sample.drop_nulls("reference").select("device", "reference").unique().rows()
    assert set(pairs) == {("wire", "direct"), ("bridge", "direct"), ("bridge", "wire")}


@pytest.mark.parametrize(
    ("held_ns", "rounds", "outcome"), [(0, 8, "supported"), (200_000, 8, "rejected"), (200_000, 2, "inconclusive")]
)
def test_stages_sum_to_the_whole_unless_frames_without_a_stamp_take_longer(
    tmp_path: Path, held_ns: int, rounds: int, outcome: str
) -> None:
    """One frame of 200 lacks the queue's stamp; held up for 200 µs, it adds 1 µs to a mean of 5.1 or 6.3 µs."""
    path = run(tmp_path / "run", rounds, held_ns=held_ns)
    (answer,) = analyse(path).hypotheses
    assert answer["outcome"] == outcome, answer["sentence"]
    assert answer["estimate"] == pytest.approx(held_ns / FRAMES, abs=20)
    if outcome != "inconclusive":
        assert answer["ci_low"] < answer["estimate"] < answer["ci_high"]
    assert f"{rounds} frames of {rounds * (FRAMES - 1)} lack a timestamp" in answer["sentence"]


def test_latency_breakdown_lists_the_stages_in_order(tmp_path: Path) -> None:
    path = run(tmp_path / "run")
    analyse(path)
    breakdown = pl.read_parquet(path / "analysis/samples/latency_breakdown.parquet")
    direct = breakdown.filter(pl.col("device") == "direct", pl.col("reference").is_null()).sort("position")
    assert direct["stage"].to_list() == [*STAGES, "total"]
    assert direct["begins"][0] == "intended"
    assert direct["ends"][4] == "receive call"
    assert direct["mean_ns"][:-1].sum() == pytest.approx(direct["mean_ns"][-1], rel=0.01)
    assert direct["share"][:-1].sum() == pytest.approx(1, abs=0.02)
    assert {"frame_bytes", "schedule"} <= set(breakdown.columns)
    assert breakdown.filter(pl.col("reference") == "direct")["device"].unique().to_list() == ["bridge"]


def test_missing_timestamp_is_named_and_its_stage_extends_to_the_next(tmp_path: Path) -> None:
    path = run(tmp_path / "run", qdisc=False)
    analyse(path)
    merged = results(path)["direct", None, "stage_send+qdisc", "mean"]
    assert merged["estimate"] == pytest.approx(STAGES["send"] + STAGES["qdisc"], rel=0.03)
    missing = pl.read_parquet(path / "analysis/samples/missing_timestamps.parquet").filter(pl.col("device") == "direct")
    assert ("queue (qdisc)", "never taken") in missing.select("stamp", "why").rows()


def test_user_timestamp_is_not_taken_for_the_timestamp_of_the_driver(tmp_path: Path) -> None:
    path = run(tmp_path / "run", departure_source="user")
    analyse(path)
    assert ("direct", None, "stage_qdisc+path", "mean") in results(path)
    missing = pl.read_parquet(path / "analysis/samples/missing_timestamps.parquet")
    assert ("driver", "taken by the program, not by the kernel") in missing.select("stamp", "why").rows()


def test_replies_add_two_stages(tmp_path: Path) -> None:
    path = run(tmp_path / "run", answered=True)
    analyse(path)
    found = results(path)
    assert found["direct", None, "stage_answer", "mean"]["estimate"] == pytest.approx(
        9_000 - STAGES["receive"], rel=0.03
    )
    assert ("direct", None, "stage_answer_receive", "mean") in found


def test_timestamps_out_of_order_are_reported(tmp_path: Path) -> None:
    path = run(tmp_path / "run", backwards=True)
    found = [one for one in analyse(path).findings if one["name"] == "stamps_out_of_order"]
    assert len(found) == 1
    assert "left out" in found[0]["sentence"]
    missing = pl.read_parquet(path / "analysis/samples/missing_timestamps.parquet")
    assert "queue (qdisc)" in missing["stamp"].to_list()
    assert ("direct", None, "stage_send+qdisc", "mean") in results(path)
