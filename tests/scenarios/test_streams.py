"""Streams from plan to figure on simulated paths: the delays, losses and rates of the plan in, the number out."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.clocks import lines_of
from sojourn.analysis.host_clock import FarClock
from sojourn.analysis.run import load
from sojourn.conduct import conduct
from sojourn.conduct.archive import create_folder
from sojourn.conduct.progress import Screen
from sojourn.plan import load_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Row = dict[str, Any]
PLAN = """
[study]
name = "truth"
method = "{method}"
[bed]
backend = "sim"
{devices}
sessions = {sessions}
[stream]
{stream}
[trials]
rounds = {rounds}
duration = "{duration}"
grace = "1ms"
seed = 7
qualify = false
a_a = {a_a}
keep = "{keep}"
[bed.lines.direct]
delay = {{ gamma = {{ shape = 4.0, scale_ns = 100.0, shift_ns = 4000.0 }} }}
clocks = {{ {clocks} }}
seed = 1
[bed.lines.bridge]
delay = {{ gamma = {{ shape = 4.0, scale_ns = 100.0, shift_ns = 5300.0 }} }}
{backward}
clocks = {{ {clocks} }}
seed = {seed}
{line}
"""
SHARED = "shared = true"
APART = "receiver = { offset_ns = 1500000000, skew_ppm = -8.0 }"


def measured(tmp_path: Path, method: str, **asked: str) -> tuple[dict[str, Any], list[Row]]:
    """Conduct and analyse a plan: its verdict and its rows."""
    told = {"rounds": "6", "duration": "20ms", "keep": "packets", "a_a": "false", "clocks": SHARED, "backward": "",
            "line": "", "method": method, "sessions": "1", "seed": "2",
            "devices": 'devices = ["bridge"]'} | asked  # fmt: skip
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "plan.toml").write_text(PLAN.format(**told))
    plan = load_plan(tmp_path / "plan.toml", backend="sim")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(StringIO()))
    analyse(folder.path)
    rows: list[Row] = json.loads(folder.results.read_text())
    return json.loads(folder.verdict.read_text()), rows


def pick(rows: list[Row], quantity: str, statistic: str, **wanted: Any) -> Row:
    wanted = {"device": "bridge", "quantity": quantity, "statistic": statistic} | wanted
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows for {wanted}"
    return found[0]


def names(verdict: dict[str, Any]) -> set[str]:
    return {one["name"] for one in verdict["findings"]}


ONE_WAY = 'payload_bytes = [46]\nschedule = ["regular"]\ninterval = ["50us", "20us"]'


@pytest.mark.parametrize("keep", ["packets", "histograms"])
def test_one_way_delays_and_device_latency_equal_those_of_the_plan(tmp_path: Path, keep: str) -> None:
    verdict, rows = measured(tmp_path, "one-way", stream=ONE_WAY, keep=keep)
    mean = pick(rows, "one_way_delay", "mean", interval_ns=50_000)
    assert mean["estimate"] == pytest.approx(5700, rel=0.1)
    added = pick(rows, "device_latency", "pooled")
    assert added["estimate"] == pytest.approx(1300, abs=40)
    assert names(verdict) <= {"reordering"}
    assert pick(rows, "loss_ratio", "ratio", interval_ns=50_000)["estimate"] == 0


def test_clock_offset_of_1500_ms_does_not_change_one_way_delays(tmp_path: Path) -> None:
    back = "delay_backward = { gamma = { shape = 4.0, scale_ns = 100.0, shift_ns = 5300.0 } }"
    verdict, rows = measured(tmp_path, "one-way", stream=ONE_WAY, clocks=APART, backward=back)
    added = pick(rows, "device_latency", "pooled")
    assert added["estimate"] == pytest.approx(1300, abs=added["clock_error95_ns"] + 40)
    assert 0 < added["clock_error95_ns"] < added["clock_bound_ns"]
    assert not names(verdict) & {"late_frames", "negative_delay", "clock_unsynchronised"}
    # The same by what reads a host's times in trials without exchanges: a line's delay, not 1.5 s.
    run = load(tmp_path / "run")
    lines = run.clock_lines.filter(~pl.col("shared"))
    block = int(lines["block"][0])
    clock = FarClock({0: lines_of(lines.filter(block=block))})
    arrivals = run.table("arrivals").frame.filter(pl.col("block") == block).drop_nulls("arrival_ns")
    assert arrivals.height > 100
    sent = arrivals["sent_ns"].to_numpy()
    delays = np.array(clock.reader(0)(arrivals["arrival_ns"].to_list())) - sent
    bound_ns = clock.errors(0, float(sent.min()), float(sent.max())).bound_ns
    assert 0 < bound_ns < 1e6
    assert abs(float(np.median(delays)) - 5_000) < bound_ns + 1_000


def test_one_way_delay_equals_the_truth_within_the_clock_error(tmp_path: Path) -> None:
    """With a serialiser on the way there, and a way back that is as long: the built-in plans' lines are like this."""
    back = "delay_backward = { gamma = { shape = 4.0, scale_ns = 100.0, shift_ns = 7800.0 } }"
    line = "serialiser = { rate_pps = 400000.0, queue_frames = 1000 }"
    stream = 'payload_bytes = [46]\nschedule = ["regular"]\ninterval = ["50us"]'
    _, rows = measured(tmp_path, "one-way", stream=stream, clocks=APART, backward=back, line=line, rounds="10")
    mean = pick(rows, "one_way_delay", "mean")
    truth = 5300 + 400 + 2500
    assert mean["ci_low"] <= truth <= mean["ci_high"]
    assert mean["ci_high"] - mean["ci_low"] >= 2 * mean["clock_error95_ns"]
    assert mean["clock_error95_ns"] < mean["clock_bound_ns"]


@pytest.mark.parametrize("back_ns", [2000, 5300, 20_000])
def test_maximum_error_holds_for_any_return_delay(tmp_path: Path, back_ns: int) -> None:
    back = f"delay_backward = {{ constant_ns = {back_ns} }}"
    stream = 'payload_bytes = [46]\nschedule = ["regular"]\ninterval = ["50us"]'
    _, rows = measured(tmp_path, "one-way", stream=stream, clocks=APART, backward=back, rounds="4")
    for device, truth in (("bridge", 5700),):
        mean = pick(rows, "one_way_delay", "mean", device=device)
        assert abs(mean["estimate"] - truth) <= mean["clock_bound_ns"]


def test_minimum_sustainable_inter_departure_time_is_found(tmp_path: Path) -> None:
    stream = 'payload_bytes = [46]\nschedule = ["regular"]\ninterval = ["20us", "12us", "9us", "5us"]'
    line = "serialiser = { rate_pps = 100000.0, queue_frames = 100000 }"
    _, rows = measured(tmp_path, "one-way", stream=stream, line=line, duration="50ms")
    shortest = pick(rows, "min_frame_interval", "sustained")
    assert (shortest["estimate"], shortest["ci_low"]) == (12_000, None)
    assert pick(rows, "min_frame_interval", "next_tried")["estimate"] == 9_000
    assert pick(rows, "min_frame_interval", "saturated")["estimate"] == pytest.approx(10_000, rel=0.01)
    assert pick(rows, "min_frame_interval", "calculated")["estimate"] == pytest.approx(10_000)


def test_independent_and_burst_losses_equal_those_of_the_plan(tmp_path: Path) -> None:
    stream = 'payload_bytes = [46]\nschedule = ["regular"]\ninterval = ["10us"]'
    _, rows = measured(tmp_path, "loss", stream=stream, line="loss = 0.02", duration="100ms")
    loss = pick(rows, "loss_ratio", "ratio")
    assert loss["ci_low"] <= 0.02 <= loss["ci_high"]
    assert pick(rows, "loss_run", "mean")["estimate"] == pytest.approx(1.02, abs=0.02)


def test_length_of_loss_bursts_is_found(tmp_path: Path) -> None:
    stream = 'payload_bytes = [46]\nschedule = ["regular"]\ninterval = ["10us"]'
    line = "bursty_loss = { p = 0.002, r = 0.1 }"
    _, rows = measured(tmp_path, "loss", stream=stream, line=line, duration="200ms")
    loss, truth = pick(rows, "loss_ratio", "ratio"), 0.002 / 0.102
    assert loss["ci_low"] <= truth <= loss["ci_high"]
    assert pick(rows, "loss_run", "mean")["estimate"] == pytest.approx(10, rel=0.15)


def test_throughput_of_a_simulated_link_is_its_rate(tmp_path: Path) -> None:
    stream = 'payload_bytes = [46, 482, 1500]\nschedule = ["flood"]'
    line = "serialiser = { rate_bps = 100000000.0, queue_frames = 64 }"
    _, rows = measured(tmp_path, "throughput", stream=stream, line=line, duration="20ms", rounds="3")
    for size in (64, 500, 1518):
        through = pick(rows, "throughput_bps", "mean", frame_bytes=size)
        assert through["estimate"] == pytest.approx(1e8, rel=0.005)
    slope = pick(rows, "inter_frame_slope", "fit")
    assert slope["estimate"] == pytest.approx(80.0, rel=0.005)


ONE_CELL = 'payload_bytes = [46]\nschedule = ["regular"]\ninterval = ["50us"]'


@pytest.mark.parametrize(("runs", "least"), [(2, 3), pytest.param(7, 12, marks=pytest.mark.proof)])
def test_intervals_over_beds_with_different_offsets_contain_the_truth(
    tmp_path: Path, runs: int, least: int, proven: Callable[..., None]
) -> None:
    """Each bed's bridge has an offset of its own, 200 ns wide, of which no bed by itself can know."""
    held, spreads = [], []
    for seed in range(10, 10 + runs):
        asked = {"stream": ONE_CELL, "sessions": "6", "rounds": "12", "duration": "5ms", "seed": str(seed)}
        _, rows = measured(tmp_path / f"{seed}", "one-way", **asked, line="session_sd_ns = 200.0")
        for what, reference, truth in (("device_latency", "direct", 1300), ("one_way_delay", None, 5700)):
            found = pick(rows, what, "mean", reference=reference)
            within = pick(rows, what, "within_bed", reference=reference)
            between = ("between_beds", "sd") if what == "device_latency" else (what, "between_beds")
            spread = pick(rows, *between, reference=reference)
            assert found["sessions"] == 6
            assert found["ci_high"] - found["ci_low"] > 3 * (within["ci_high"] - within["ci_low"])
            held.append(found["ci_low"] <= truth <= found["ci_high"])
            spreads.append(spread["ci_low"] <= 200 <= spread["ci_high"])
        median = pick(rows, "one_way_delay", "p50")
        assert (median["sessions"], median["n"]) == (6, 6)
        assert pick(rows, "device_latency", "pooled")["sessions"] == 6
    proven("truths", "delays of streams over beds that differ", held=sum(held), of=len(held))
    assert sum(held) >= least, held
    assert sum(spreads) >= least, spreads


TWO_CELLS = 'payload_bytes = [46, 1500]\nschedule = ["regular"]\ninterval = ["50us"]'
WIRE_AND_CONTROL = """[bed.lines.wire]
delay = {{ gamma = {{ shape = 4.0, scale_ns = 100.0, shift_ns = 5000.0 }} }}
clocks = {{ shared = true }}
seed = 4
[bed.lines."a/a"]
delay = {{ gamma = {{ shape = 4.0, scale_ns = 100.0, shift_ns = {control_ns} }} }}
clocks = {{ shared = true }}
seed = 5"""


@pytest.mark.parametrize(("control_ns", "apart"), [(4000.0, False), (4120.0, True)])
def test_headline_over_the_wire_is_the_truth_and_unequal_direct_links_are_found(
    tmp_path: Path, control_ns: float, apart: bool
) -> None:
    """Of 1.3 us over the direct link the wire has 1.0; the A/A control is a second direct link, 0.12 us off or not."""
    lines = WIRE_AND_CONTROL.format(control_ns=control_ns)
    bed = 'devices = ["wire", "bridge"]\ntwins = true'
    asked = {"stream": TWO_CELLS, "line": lines, "a_a": "true", "rounds": "12", "sessions": "6",
             "devices": bed, "duration": "5ms"}  # fmt: skip
    verdict, rows = measured(tmp_path, "one-way", **asked)
    over_wire = pick(rows, "device_latency", "mean", reference="wire", cell=0)
    assert over_wire["ci_low"] <= 300 <= over_wire["ci_high"]
    assert over_wire["ci_high"] - over_wire["ci_low"] < 60
    over_direct = pick(rows, "device_latency", "mean", reference="direct", cell=0)
    assert over_direct["ci_low"] <= 1300 <= over_direct["ci_high"]
    assert (verdict["pairs"]["reference"], verdict["pairs"]["estimate"]) == ("wire", over_wire["estimate"])
    control = pick(rows, "device_latency", "pooled", device="a/a")
    assert control["estimate"] == pytest.approx(control_ns - 4000, abs=15)
    assert ("a_a_nonzero" in names(verdict)) == apart
    assert verdict["verdict"] == ("doubtful" if apart else "trusted")
    assert pick(rows, "resolution", "pooled", device="a/a")["estimate"] >= control_ns - 4000


def test_without_a_second_link_the_a_a_control_reuses_the_direct_link(tmp_path: Path) -> None:
    lines = WIRE_AND_CONTROL.format(control_ns=9000.0)
    bed = 'devices = ["wire", "bridge"]'
    _, rows = measured(tmp_path, "one-way", stream=ONE_CELL, line=lines, a_a="true", devices=bed)
    assert pick(rows, "device_latency", "pooled", device="a/a")["estimate"] == pytest.approx(0, abs=40)


SECOND = """[bed.lines."bridge/2"]
delay = {{ gamma = {{ shape = 4.0, scale_ns = 100.0, shift_ns = {second_ns} }} }}
clocks = {{ shared = true }}
seed = 6"""


def test_latency_of_unequal_instances_is_their_mean_and_their_spread_is_reported(
    tmp_path: Path,
) -> None:
    """The device adds 1.3 us, its second instance 1.5: the path adds 1.4, and the instances are 0.2 us apart."""
    lines = SECOND.format(second_ns=5500.0)
    bed = 'devices = ["bridge"]\ntwins = true'
    asked = {"stream": TWO_CELLS, "line": lines, "a_a": "true", "rounds": "12", "sessions": "6",
             "devices": bed, "duration": "5ms"}  # fmt: skip
    _, rows = measured(tmp_path, "one-way", **asked)
    added = pick(rows, "device_latency", "mean", reference="direct", cell=0)
    assert added["ci_low"] <= 1400 <= added["ci_high"]
    apart = pick(rows, "instance_difference", "pooled")
    assert apart["estimate"] == pytest.approx(200, abs=15)
    assert apart["ci_low"] <= 200 <= apart["ci_high"]
    control = pick(rows, "instance_difference", "pooled", device="direct")
    assert control["ci_low"] <= 0 <= control["ci_high"]
    assert pick(rows, "between_instances", "sd")["estimate"] < 30, "all beds have the same two"
    (budget,) = json.loads((tmp_path / "run" / "analysis" / "budgets.json").read_text())
    entry = next(one for one in budget["components"] if one["name"] == "instance of link and device")
    assert entry["state"] == "contained"


def test_throughput_study_has_an_a_a_control_of_two_direct_links(tmp_path: Path) -> None:
    """No path of the plan is a control: what is sent over the direct path is sent over both of its links in turn."""
    flood = 'payload_bytes = [1500]\nschedule = ["flood"]'
    control = """[bed.lines."a/a"]
delay = { gamma = { shape = 4.0, scale_ns = 100.0, shift_ns = 4000.0 } }
serialiser = { rate_pps = 90000.0, queue_frames = 100 }
clocks = { shared = true }
seed = 5"""
    bed = 'devices = ["bridge"]\ntwins = true'
    asked = {"stream": flood, "rounds": "12", "sessions": "6", "devices": bed, "duration": "5ms", "keep": "histograms"}
    verdict, rows = measured(tmp_path / "alike", "throughput", **asked)
    assert "a_a_nonzero" not in names(verdict)
    verdict, rows = measured(tmp_path / "apart", "throughput", line=control, **asked)
    assert "a_a_nonzero" in names(verdict)
    apart = pick(rows, "instance_difference", "pooled", device="direct")
    assert apart["unit"] == "1"
    assert apart["estimate"] < -0.5, "the second direct link lets 90,000 frames a second through, the first all"


TWO = 'payload_bytes = [1500]\nsenders = [2]\nschedule = ["regular"]\ninterval = ["2ms"]\nwalk = 1'


def test_delay_of_two_regular_streams_depends_on_their_phase(tmp_path: Path) -> None:
    """A frame takes 1 ms of the 4 ms between a stream's: the first of 20 bins waits for 0.9 ms, the last for none."""
    line = "serialiser = { rate_pps = 1000.0, queue_frames = 100 }"
    verdict, rows = measured(tmp_path, "fan-in", stream=TWO, line=line, duration="400ms", rounds="12")
    first, last = (pick(rows, "delay_by_phase", f"at_{at}")["estimate"] for at in ("0.025", "0.975"))
    assert last == pytest.approx(5_700 + 1e6, abs=200)
    assert first - last == pytest.approx(0.9e6, abs=25_000)
    middle = pick(rows, "delay_by_phase", "at_0.125")["estimate"] - last
    assert middle == pytest.approx(0.5e6, abs=25_000)
    assert pick(rows, "phase_effect", "behind")["estimate"] == pytest.approx(first - last, rel=0.01)
    assert "phase_dependent" in names(verdict)


def test_two_regular_streams_without_contention_show_no_phase_dependence(tmp_path: Path) -> None:
    verdict, rows = measured(tmp_path, "fan-in", stream=TWO, duration="400ms", rounds="12")
    behind = pick(rows, "phase_effect", "behind")
    assert behind["ci_low"] <= 0 <= behind["ci_high"]
    assert "phase_dependent" not in names(verdict)
