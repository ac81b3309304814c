"""Method "taps" on made-up runs of known truth: the delay between the taps, modes, and subtraction beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis.run import load
from sojourn.methods.taps.analyse import budgets, study
from sojourn.records.log import read_log
from tests.unit.made_up_streams import write_table
from tests.unit.synthetic_streams import StreamRun, cell

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.analysis.rows import Row
    from sojourn.analysis.study import Study

BETWEEN_NS = {"wire": 900.0, "bridge": 1_300.0, "bridge:qos": 2_100.0}
AT_ENDS_NS = {"wire": 1_000.0, "bridge": 1_400.0, "bridge:qos": 2_500.0}
"""By subtraction HTB takes 300 ns more over the redirect than between its ports: its receiver's side is slower."""
COUNT = 400
STEPS_NS = np.array([95_000, 125_000])
"""Times between frames that are as likely: of 100 us asked, one is within 10 %; of 200 us, none."""


def made_up(
    path: Path, *, lost: int = 0, dropped: int = 0, ambiguous: int = 0, entry: str = "kernel", seed: int = 3
) -> Path:
    """A run whose taps saw every packet but the lost ones, and one of another length, which is none of the stream's."""
    run = StreamRun(path, "taps", [cell(), cell(interval_ns=200_000)], AT_ENDS_NS, count=COUNT, seed=seed)
    folder = run.write()
    rng = np.random.default_rng(seed)
    lines = folder.joinpath("log.jsonl").read_text().splitlines()
    for event in (one for one in read_log(folder / "log.jsonl") if one["event"] == "stream-trial"):
        if event["device"] not in BETWEEN_NS:
            continue
        delays = BETWEEN_NS[event["device"]] + rng.normal(0, 20) + rng.gamma(2, 50, COUNT - lost) - 100
        out = folder / "records" / "taps" / f"000-{event['block']}" / "matched"
        out.mkdir(parents=True)
        columns = {
            "first_source": entry, "second_source": "kernel",
            "direction": ["forward"] * (len(delays) + 1), "length_bytes": [60] * len(delays) + [90],
            "number": [*range(len(delays)), len(delays) + 5],
            "first_ns": np.cumsum(STEPS_NS[rng.integers(0, 2, len(delays) + 1)]),
            "delay_ns": [*delays.astype(int), 10**9],
        }  # fmt: skip
        write_table(out / "crossings-match-000.arrow", "crossings", pl.DataFrame(columns))
        counts = {"matched": len(delays), "lost": lost // 4, "pending": lost - lost // 4, "ambiguous": ambiguous}
        taps = {
            "event": "taps", "block": event["block"], "device": event["device"],
            "records": f"taps/000-{event['block']}/matched",
            "captured": {"taps": [{"account": {"dropped": dropped}}, {"account": {"dropped": 0}}]},
            "matched": {"pairs": [{"directions": [{"direction": "forward", "counts": counts}]}]},
        }  # fmt: skip
        lines.insert(-1, json.dumps(taps))
    folder.joinpath("log.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def rows_of(
    found: Study, device: str, quantity: str, statistic: str = "mean", reference: str | None = None
) -> list[Row]:
    return [
        row for row in found.rows
        if (row.device, row.quantity, row.statistic, row.reference) == (device, quantity, statistic, reference)
    ]  # fmt: skip


def holds(row: Row, truth: float) -> bool:
    value = row.value
    return value.low is not None and value.high is not None and value.low <= truth <= value.high


def test_the_delay_between_taps_is_what_it_was_made_of(tmp_path: Path) -> None:
    run = load(made_up(tmp_path / "run"))
    found = study(run)
    for device, truth in BETWEEN_NS.items():
        means = rows_of(found, device, "delay_between_taps")
        assert len(means) == 2, "one for each cell"
        assert all(holds(row, truth) for row in means), [row.value for row in means]
        # Of a gamma with shape 2 and scale 50, less 100: its 99 % quantile is 332 - 100.
        for row in rows_of(found, device, "delay_between_taps", "p99"):
            assert row.value.estimate == pytest.approx(truth + 232, abs=60)
    for row in rows_of(found, "bridge:qos", "delay_between_taps_over", reference="bridge"):
        assert holds(row, 800)
    for row in rows_of(found, "bridge", "delay_between_taps_over", reference="wire"):
        assert holds(row, 400)
    assert not rows_of(found, "wire", "delay_between_taps_over", reference="bridge")
    assert found.headline is not None
    assert (found.headline.device, found.headline.quantity) == ("bridge", "delay_between_taps")
    assert found.sentence.startswith("The Linux bridge holds a packet for")
    (stated,) = budgets(run, found)
    assert stated.row is found.headline


def test_what_subtraction_tells_beyond_the_ports_is_a_finding(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run")))
    for row in rows_of(found, "bridge", "subtraction_less_taps", reference="wire"):
        assert abs(row.value.estimate) < 120
    for row in rows_of(found, "bridge:qos", "subtraction_less_taps", reference="wire"):
        assert holds(row, 300)
    (told,) = [one for one in found.findings if one.name == "taps_disagree"]
    assert told.value == pytest.approx(300, abs=120)
    assert {place.device for place in told.places} >= {"bridge:qos"}
    assert "bridge:qos" in told.sentence


def test_losses_between_the_taps_are_infinite_delays_and_doubts_are_told(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", lost=20, dropped=2, ambiguous=5)))
    for row in rows_of(found, "bridge", "delay_between_taps", "p99"):
        assert row.value.estimate == float("inf"), "5 % never came"
    for row in rows_of(found, "bridge", "delay_between_taps", "p50"):
        assert row.value.estimate == pytest.approx(BETWEEN_NS["bridge"], abs=60)
    told: dict[str, Any] = {one.name: one for one in found.findings}
    assert "no room for" in told["local_drops"].sentence
    assert told["ambiguous_matches"].severity == "note"


def test_a_run_without_any_crossing_says_so(tmp_path: Path) -> None:
    folder = StreamRun(tmp_path / "run", "taps", [cell()], AT_ENDS_NS, count=COUNT).write()
    found = study(load(folder))
    assert found.headline is None
    assert "No packet was seen by both taps" in found.sentence


def test_times_between_frames_are_told_by_both_kinds_of_stamps(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run")))
    for row in rows_of(found, "bridge", "tap_interval"):
        assert holds(row, STEPS_NS.mean())
    for row in rows_of(found, "bridge", "tap_interval", "sd"):
        assert row.value.estimate == pytest.approx(15_000, rel=0.02)
    shares = [row.value.estimate for row in rows_of(found, "bridge", "tap_interval_within_10", "ratio")]
    assert shares == [pytest.approx(0.5, abs=0.03), 0.0]
    for row in rows_of(found, "bridge", "departure_interval"):
        asked = row.factors.interval_ns
        assert asked is not None
        assert row.value.estimate == pytest.approx(asked, rel=0.01)
        assert row.source != "the kernel, at both ports of the device"


def test_the_density_holds_every_packet(tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run"))).samples["tap_density"]
    sums = found.group_by("device", "cell").agg(pl.col("share").sum())
    assert sums["share"].to_list() == [pytest.approx(1.0)] * 6
    bulk = found.filter(pl.col("device") == "bridge:qos").sort("share").tail(1).row(0, named=True)
    assert bulk["low_ns"] <= BETWEEN_NS["bridge:qos"] <= bulk["high_ns"]


@pytest.mark.parametrize(
    ("entry", "said"), [("kernel", "kernel"), ("hardware", "hardware at the entry, kernel at the")]
)
def test_figures_say_who_stamped_at_either_port(entry: str, said: str, tmp_path: Path) -> None:
    found = study(load(made_up(tmp_path / "run", entry=entry)))
    assert found.headline is not None
    assert found.headline.source.startswith(said)
