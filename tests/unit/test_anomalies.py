"""Method "anomalies": what a series was made of is found with its period and size, and nothing where it has nothing."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sojourn.analysis import analyse
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.errors import RequestError
from sojourn.methods.anomalies.analyse import COUNTED, EITHER, TIMED, Shown, attributed
from sojourn.methods.anomalies.analyse.series import (
    DRIFT,
    EVERY,
    MODE,
    PULSE,
    RAMP,
    STEP,
    Anomaly,
    Series,
    anomalies_in,
)
from sojourn.methods.anomalies.show import keys
from sojourn.plan import load_plan
from sojourn.records import RunFolder
from sojourn.report import write_report
from sojourn.report.contents import all_figures, all_tables
from sojourn.report.run import Run
from sojourn.statistics.fold import find_every
from sojourn.statistics.interval import Interval, student_quantile
from sojourn.statistics.steps import find_steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

INTERVAL_S = 0.01
LENGTH = 90_000


def quiet(rng: np.random.Generator, length: int = LENGTH) -> NDArray[np.float64]:
    """Round trips of 11.2 us, sd 0.4 us."""
    return np.asarray(10_000 + rng.gamma(8, 150, length), dtype=np.float64)


def found_in(values: NDArray[np.float64], interval_s: float = INTERVAL_S) -> list[Anomaly]:
    return anomalies_in(Series(np.arange(len(values), dtype=np.float64) * interval_s, values, interval_s))


def within(anomaly: Anomaly, truth: float, share: float) -> bool:
    size = anomaly.size
    return abs(size.estimate - truth) <= share * truth and size.low is not None and size.high is not None


@pytest.mark.parametrize("seed", range(5))
def test_anomalies_of_the_card_in_the_paper_are_found(seed: int) -> None:
    """Every 50th packet is delayed, in a ramp every 90 to 95 s (bridge-2003, appendix 3)."""
    rng = np.random.default_rng(seed)
    period, t = rng.uniform(90, 95), np.arange(LENGTH) * INTERVAL_S
    into = np.mod(t + rng.uniform(0, period), period)
    every_50th = np.arange(LENGTH) % 50 == rng.integers(50)
    ramp = np.where(into < 20, 2e6 * into / 20, 0)
    every, ramped = found_in(quiet(rng) + np.where(every_50th, 100_000 + ramp, 0))
    assert (every.kind, every.every, ramped.kind, ramped.among) == (EVERY, 50, RAMP, 50)
    assert within(every, 100_000, 0.02)
    assert ramped.seconds == pytest.approx(period, rel=0.005)
    assert ramped.duration_s == pytest.approx(20, rel=0.1)
    assert within(ramped, 2e6, 0.1)
    assert ramped.size.low is not None
    assert ramped.size.high is not None
    assert ramped.size.low <= 2e6 <= ramped.size.high
    assert every.p is not None
    assert ramped.p is not None
    assert max(every.p, ramped.p) <= 1e-5


def test_ramp_is_found_also_together_with_periodic_holds() -> None:
    rng = np.random.default_rng(1)
    into = np.mod(np.arange(LENGTH) * INTERVAL_S + 31, 92.5)
    values = quiet(rng) + np.where(into < 20, 50_000 * into / 20, 0)
    (ramp,) = found_in(values)
    values[17::50] += 100_000
    every, beside = found_in(values)
    for one in (ramp, beside):
        assert (one.kind, one.among) == (RAMP, None)
        assert one.seconds == pytest.approx(92.5, rel=0.002)
        assert within(one, 50_000, 0.05)
    assert every.every == 50
    assert within(every, 100_000, 0.01)


@pytest.mark.parametrize(("every", "by"), [(2, 400.0), (50, 400.0), (117, 5_000.0), (731, 20_000.0)])
def test_every_nth_is_found_even_within_the_noise(every: int, by: float) -> None:
    values = quiet(np.random.default_rng(every))
    values[every // 3 :: every] += by
    (one,) = found_in(values)
    assert (one.kind, one.every, one.phase) == (EVERY, every, every // 3)
    assert one.size.low is not None
    assert one.size.high is not None
    assert one.size.low <= by <= one.size.high or within(one, by, 0.05)


def test_delay_periodic_in_time_is_a_pulse_not_an_every_nth() -> None:
    """2.5137 s are no whole number of 10 ms, and 754 probes are nearly three times as long."""
    values = quiet(np.random.default_rng(2))
    values[np.mod(np.arange(LENGTH) * INTERVAL_S, 2.5137) < 0.03] += 20_000
    (one,) = found_in(values)
    assert one.kind == PULSE
    assert one.seconds == pytest.approx(2.5137, rel=1e-3)
    assert within(one, 20_000, 0.1)
    assert one.duration_s == pytest.approx(0.03, abs=0.01)


@pytest.mark.parametrize(("length", "every", "held"), [
    (20_000, 50, 3), (20_000, 50, 5), (20_000, 100, 3), (20_000, 200, 3), (20_000, 200, 5),
    (LENGTH, 50, 10), (LENGTH, 50, 3), (LENGTH, 500, 5), (LENGTH, 1000, 30),
])  # fmt: skip
def test_pulse_with_a_period_of_whole_probe_intervals_is_found(length: int, every: int, held: int) -> None:
    values = quiet(np.random.default_rng(every + held))[:length]
    values[np.arange(length) % every < held] += 100_000
    (one,) = found_in(values)
    assert one.kind == PULSE
    assert one.seconds == pytest.approx(every * INTERVAL_S, rel=1e-3)
    assert within(one, 100_000, 0.05)
    assert one.duration_s == pytest.approx(held * INTERVAL_S, abs=0.6 * INTERVAL_S)


@pytest.mark.parametrize("every", [50, 200])
def test_two_consecutive_slow_probes_are_two_every_nth_anomalies(every: int) -> None:
    values = quiet(np.random.default_rng(every))[:20_000]
    values[np.arange(20_000) % every < 2] += 100_000
    found = found_in(values)
    assert [(one.kind, one.every) for one in found] == [(EVERY, every)] * 2
    assert sorted(one.phase or 0 for one in found) == [0, 1]
    assert all(within(one, 100_000, 0.05) for one in found)


def test_every_nth_anomaly_is_found_beside_a_pulse() -> None:
    values = quiet(np.random.default_rng(7))
    values[np.arange(LENGTH) % 50 < 3] += 100_000
    values[::37] += 50_000
    every, pulse = sorted(found_in(values), key=lambda one: one.kind)
    assert (every.kind, every.every, every.phase) == (EVERY, 37, 0)
    assert within(every, 50_000, 0.05)
    assert pulse.kind == PULSE
    assert pulse.seconds == pytest.approx(50 * INTERVAL_S, rel=1e-3)
    assert within(pulse, 100_000, 0.05)


@pytest.mark.parametrize(
    ("one", "other", "place", "held"), [((40, 100_000), (64, 70_000), 11, 3), ((40, 100_000), (72, 70_000), 11, 3)]
)
def test_two_pulses_produce_no_spurious_anomaly(
    one: tuple[int, int], other: tuple[int, int], place: int, held: int
) -> None:
    """The longer one is told as numbers, of which each probe has its own size."""
    k, values = np.arange(20_000), quiet(np.random.default_rng(4))[:20_000]
    values[k % one[0] < held] += one[1]
    values[(k + place) % other[0] < held] += other[1]
    found = found_in(values)
    assert [round(it.seconds or 0, 2) for it in found if it.kind == PULSE] == [one[0] * INTERVAL_S]
    assert {it.every for it in found if it.kind == EVERY} <= {other[0]}
    assert all(it.size.estimate > 0.8 * other[1] for it in found if it.kind == EVERY)


def test_step_drift_and_modes_are_not_confused() -> None:
    rng = np.random.default_rng(3)
    stepped = quiet(rng)
    stepped[40_000:] += 3_000
    (step,) = found_in(stepped)
    assert step.kind == STEP
    assert step.at_s == pytest.approx(400, abs=3)
    assert within(step, 3_000, 0.05)
    (drift,) = found_in(quiet(rng) * (1 + 0.1 * np.arange(LENGTH) / LENGTH))
    assert drift.kind == DRIFT
    assert drift.size.estimate == pytest.approx(1_120, rel=0.05)
    (mode,) = found_in(quiet(rng) + np.where(rng.random(LENGTH) < 0.3, 8_000, 0))
    assert mode.kind == MODE
    assert mode.size.estimate == pytest.approx(8_000, rel=0.02)
    assert mode.share == pytest.approx(0.3, abs=0.01)


def leaky(values: NDArray[np.float64], keep: float) -> NDArray[np.float64]:
    """Each value with a part of the one before."""
    out = np.empty(len(values))
    level = 0.0
    for place, value in enumerate(values):
        level = keep * level + value
        out[place] = level
    return out


NOTHING: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "gamma": lambda rng, n: 10_000 + rng.gamma(4, 150, n),
    "heavy tail": lambda rng, n: 10_000 + 500 * rng.pareto(1.5, n),
    "normal": lambda rng, n: rng.normal(20_000, 500, n),
    "a coarse clock": lambda rng, n: np.round(rng.normal(20_000, 500, n), -3),
    "log-normal": lambda rng, n: 5_000 + rng.lognormal(6, 1, n),
    "constant": lambda rng, n: np.full(n, 1_000.0),
    "neighbours alike": lambda rng, n: 20_000 + leaky(rng.normal(0, 200, n), 0.9),
    "bursts": lambda rng, n: (
        10_000 + rng.gamma(4, 150, n) + 40_000 * (leaky((rng.random(n) < 0.002).astype(np.float64), 0.7) > 0.3)
    ),
}


@pytest.mark.parametrize("seeds", [24, pytest.param(400, marks=pytest.mark.proof)])
@pytest.mark.parametrize("name", NOTHING)
def test_a_device_that_does_nothing_has_no_anomaly(name: str, seeds: int, proven: Callable[..., None]) -> None:
    alarms = []
    for seed in range(seeds):
        rng, length = np.random.default_rng(seed), (3_000, 8_000, 20_000)[seed % 3]
        alarms += [(seed, one.kind) for one in found_in(NOTHING[name](rng, length), 0.001)]
    proven("alarms", "delays that follow a rule, by law of the delays", alarms=len(alarms), of=seeds)
    assert not alarms


def test_lost_probes_do_not_shift_the_count() -> None:
    rng = np.random.default_rng(5)
    values = quiet(rng)
    values[::50] += 100_000
    values[rng.random(LENGTH) < 0.1] = np.nan
    (one,) = found_in(values)
    assert (one.every, one.phase) == (50, 0)


def bursts(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    first = int(rng.integers(500, 6_000))
    values[first : first + 30] += 40_000
    return values


def stalled(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    first = int(rng.integers(500, 6_000))
    values[first : first + 10] += 1e6 * np.arange(10, 0, -1)
    return values


def pink(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    frequencies = np.maximum(1.0, np.arange(len(values) // 2 + 1))
    noise = np.fft.irfft(np.fft.rfft(rng.normal(0, 1, len(values))) / frequencies**0.5, len(values))
    return np.asarray(values + 300 * noise / noise.std(), dtype=np.float64)


def wandering(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    return values + leaky(rng.normal(0, 200, len(values)), 0.999)


@pytest.mark.parametrize("made", [bursts, stalled, pink, wandering])
def test_a_burst_a_stall_and_slow_noise_are_no_step(made: Callable[..., NDArray[np.float64]]) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        assert not [one for one in found_in(made(quiet(rng, 7_000), rng), 0.001) if one.kind == STEP]


def test_interval_of_a_step_contains_its_true_size() -> None:
    held = 0
    for seed in range(20):
        values = quiet(np.random.default_rng(seed), 40_000)
        values[15_000:] += 3_000
        (step,) = find_steps(values, 200)
        reach = student_quantile(step.degrees, 0.95) * step.error
        held += abs(step.by - 3_000) <= reach
        assert step.p < 1e-6
        assert reach < 300
    assert held >= 17


def test_a_level_that_rises_and_falls_once_has_two_steps() -> None:
    values = quiet(np.random.default_rng(4), 40_000)
    values[10_000:20_000] += 3_000
    up, down = find_steps(values, 200)
    assert up.by == pytest.approx(3_000, rel=0.05)
    assert down.by == pytest.approx(-3_000, rel=0.05)


def test_a_sawtooth_is_a_ramp_and_no_steps() -> None:
    into = np.mod(np.arange(LENGTH) * INTERVAL_S + 31, 92.5) / 92.5
    (ramp,) = found_in(quiet(np.random.default_rng(6)) + 50_000 * into)
    assert ramp.kind == RAMP
    assert ramp.seconds == pytest.approx(92.5, rel=0.005)
    assert within(ramp, 50_000, 0.05)
    assert ramp.p is None


def test_equal_values_of_a_coarse_clock_have_no_period() -> None:
    for seed in range(2):
        values = np.round(10_000 + np.random.default_rng(seed).gamma(4, 150, LENGTH), -3)
        assert find_every(values) is None


def test_a_lost_probe_counts_neither_as_slow_nor_as_fast() -> None:
    """Of every 10th half are lost, where others are slower than the median in most cases."""
    rng = np.random.default_rng(7)
    values = 10_000 + np.where(rng.random(20_000) < 0.6, 0.0, rng.exponential(1_000, 20_000))
    values[::10][rng.random(2_000) < 0.9] = np.nan
    values[1::2][rng.random(10_000) < 0.5] = np.nan
    assert find_every(values) is None


def test_two_every_nth_anomalies_are_found_beside_the_ramp_of_the_paper() -> None:
    t = np.arange(LENGTH) * INTERVAL_S
    into = np.mod(t + 7, 92.5)
    values = quiet(np.random.default_rng(0))
    values[3::50] += np.where(into < 20, 2e6 * into / 20, 0)[3::50]
    values[5::8] += 700
    found = found_in(values)
    assert [(one.kind, one.every or one.among) for one in found] == [(EVERY, 8), (EVERY, 50), (RAMP, 50)]
    tick, _, ramp = found
    assert within(tick, 700, 0.05)
    assert ramp.seconds == pytest.approx(92.5, rel=0.005)
    assert within(ramp, 2e6, 0.1)


@pytest.mark.parametrize("every", [1_500, 2_100])
def test_every_nth_anomaly_above_1000_is_found(every: int) -> None:
    values = quiet(np.random.default_rng(every))
    values[every // 3 :: every] += 20_000
    (one,) = found_in(values)
    assert (one.every, one.phase) == (every, every // 3)
    assert within(one, 20_000, 0.02)


@pytest.mark.parametrize("length", [0, 1, 30, 999])
def test_short_series_show_no_anomaly(length: int) -> None:
    values = np.resize([1.0, 5.0], length)
    assert found_in(values) == []
    assert find_every(np.resize([1.0], length)) is None
    assert find_steps(values, 0.1) == []


@pytest.mark.parametrize("length", [1999, 2000, 2024, 2025])
def test_noise_in_the_minimum_number_of_bins_shows_no_anomaly(length: int) -> None:
    """With 80 bins of 25 probes there is no period yet to try."""
    assert found_in(quiet(np.random.default_rng(0), length)) == []


PLAN = """
[study]
name = "made-up"
method = "anomalies"
[bed]
backend = "sim"
devices = ["bridge"]
[probe]
interval = [{intervals}]
[pairs]
rounds = 2
probes_per_block = {probes}
warmup_probes = 10
a_a = false
seed = {seed}
[bed.lines.direct]
forward = {{ gamma = {{ shape = 4.0, scale_ns = 150.0, shift_ns = 4000.0 }} }}
backward = {{ gamma = {{ shape = 4.0, scale_ns = 150.0, shift_ns = 4000.0 }} }}
seed = {seed}1
{direct}
[bed.lines.bridge]
forward = {{ gamma = {{ shape = 4.0, scale_ns = 150.0, shift_ns = 5300.0 }} }}
backward = {{ gamma = {{ shape = 4.0, scale_ns = 150.0, shift_ns = 5300.0 }} }}
seed = {seed}2
{bridge}
"""


def measured(path: Path, seed: int = 1, *, probes: int = 5_000, intervals: str = '"1ms", "2ms"', direct: str = "",
             bridge: str = "") -> RunFolder:  # fmt: skip
    file = path / f"plan-{seed}.toml"
    file.write_text(PLAN.format(seed=seed, probes=probes, intervals=intervals, direct=direct, bridge=bridge))
    plan = load_plan(file)
    folder = create_folder(plan, path / f"run-{seed}")
    conduct(plan, folder, Screen(io.StringIO()))
    analyse(folder.path)
    return folder


def told(folder: RunFolder) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The verdict, and its findings by their names."""
    verdict = json.loads(folder.verdict.read_text())
    return verdict, {one["name"]: one for one in verdict["findings"]}


def test_simulated_card_of_the_paper_is_reported_with_period_and_size(tmp_path: Path) -> None:
    card = (
        "hold = { every = 50, for_ns = 100_000 }\n"
        "ramp = { every_ns = 92_500_000_000, for_ns = 20_000_000_000, to_ns = 2_000_000, nth = 50 }"
    )
    folder = measured(tmp_path, probes=90_000, intervals='"10ms"', bridge=card)
    verdict, findings = told(folder)
    assert verdict["verdict"] == "trusted"
    assert set(findings) == {"periodic_delay", "delay_ramps"}
    assert findings["periodic_delay"]["value"] == 50
    assert findings["delay_ramps"]["value"] == pytest.approx(92.5, rel=0.005)
    assert verdict["sentence"].startswith(
        "Simulated, not measured: Over the Linux bridge, every 50th probe takes 100 µs"
    )
    rows = {(row["quantity"], row["statistic"]): row for row in json.loads(folder.results.read_text())}
    assert rows["anomaly_every", "every-nth"]["estimate"] == 50
    assert rows["anomaly_size", "every-nth"]["estimate"] == pytest.approx(100_000, rel=0.01)
    assert rows["anomaly_size", "ramp"]["estimate"] == pytest.approx(2e6, rel=0.1)
    assert rows["anomaly_period", "ramp"]["estimate"] == pytest.approx(92.5e9, rel=0.005)
    write_report(folder.path, vector=True)
    run = Run.read(folder.path)
    table = next(one for one in all_tables(run) if one.name == "anomalies")
    assert [row[2].text for row in table.rows] == [EVERY, RAMP]
    assert {"anomaly_profiles", "rtt_over_time"} <= {one.name for one in all_figures(run)}


@pytest.mark.parametrize("seed", range(1, 4))
def test_simulated_bridge_without_anomaly_is_reported_as_such(seed: int, tmp_path: Path) -> None:
    verdict, findings = told(measured(tmp_path, seed))
    assert not findings
    assert "shows no anomaly in 19 960 probes: no period, ramp, step or mode" in verdict["sentence"].replace(
        "\u202f", " "
    )
    assert "8 series were searched" in verdict["sentence"]


def test_delay_with_the_same_count_at_two_intervals_is_periodic_in_count(tmp_path: Path) -> None:
    _, findings = told(measured(tmp_path, bridge="hold = { every = 20, for_ns = 5_000 }"))
    assert "every 20th probe takes 5.0 µs" in findings["periodic_delay"]["sentence"]
    assert "at every interval between probes" in findings["periodic_delay"]["sentence"]


@pytest.mark.parametrize(("numbers", "by"), [((8, 4), TIMED), ((8, 8), COUNTED), ((8, 5), EITHER)])
def test_two_probe_intervals_distinguish_periods_in_time_and_in_count(numbers: tuple[int, int], by: str) -> None:
    cells = {0: SimpleNamespace(interval_ns=500_000), 1: SimpleNamespace(interval_ns=1_000_000)}
    size = Interval(700.0, 600.0, 800.0, 0.95, 20)
    shown = [Shown("bridge", cell, Anomaly(EVERY, size, 1e-9, every=n), 2, 2) for cell, n in enumerate(numbers)]
    run: Any = SimpleNamespace(cells=cells)
    assert [one.told_by for one in attributed(run, shown)] == [by, by]


def anomaly(kind: str, size: float, **more: Any) -> Anomaly:
    return Anomaly(kind, Interval(size, 0.9 * size, 1.1 * size, 0.95, 20), 1e-9, **more)


@pytest.mark.parametrize(
    ("one", "other", "seen", "alike"),
    [
        (anomaly(EVERY, 700, every=8), anomaly(EVERY, 720, every=8), 2, True),
        (anomaly(EVERY, 100_000, every=8), anomaly(EVERY, 700, every=8), 2, False),
        (anomaly(EVERY, 700, every=8), anomaly(EVERY, 720, every=8), 1, True),
        (anomaly(STEP, 3_000), anomaly(STEP, 3_100), 1, True),
        (anomaly(STEP, 3_000), anomaly(STEP, 300), 1, False),
        (anomaly(STEP, 3_000), Anomaly(STEP, Interval(-3_000, -3_300, -2_700, 0.95, 20), 1e-9), 1, False),
        (anomaly(MODE, 8_000), anomaly(MODE, 80_000), 2, False),
    ],
)
def test_anomaly_is_attributed_to_the_direct_link_only_if_equally_large_there(
    one: Anomaly, other: Anomaly, seen: int, alike: bool
) -> None:
    run: Any = SimpleNamespace(cells={0: SimpleNamespace(interval_ns=500_000)})
    shown = [Shown("direct", 0, other, seen, 2), Shown("bridge", 0, one, 2, 2)]
    assert [which.on_direct for which in attributed(run, shown)] == [False, alike]


def test_anomaly_of_a_single_series_is_counted_in_the_sentence_without_a_tile(
    synthetic: Callable[..., Any],
) -> None:
    def alter(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
        del rng
        if block["device"] == "bridge" and block["round"] == 0:
            probes["arrival_ns"][::20] += 5_000

    path = synthetic(rounds=2, icmp_bytes=(64,), count=5_000, alter=alter, a_a=False, hypotheses=()).write()
    plan = path / "plan.toml"
    plan.write_text(plan.read_text().replace('method = "pairs"', 'method = "anomalies"'))
    analyse(path)
    verdict, _ = told(RunFolder(path))
    assert "in most series; 1 anomaly in single series only, see the table" in verdict["sentence"]
    assert "searched for periods of up to 1000 probes" in verdict["sentence"]
    assert not keys(Run.read(path))


def test_anomaly_also_on_the_direct_link_is_not_attributed_to_the_device(tmp_path: Path) -> None:
    hold = "hold = { every = 20, for_ns = 5_000 }"
    verdict, findings = told(measured(tmp_path, direct=hold, bridge=hold))
    assert "shows no anomaly that the direct link does not show" in verdict["sentence"]
    worst = findings["periodic_delay"]
    assert {place["device"] for place in worst["places"]} == {"direct", "bridge"}


def test_level_shift_is_a_finding(synthetic: Callable[..., Any]) -> None:
    def alter(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
        del rng
        if block["device"] == "bridge":
            probes["arrival_ns"][2_000:] += 3_000

    path = synthetic(rounds=2, icmp_bytes=(64,), count=5_000, alter=alter, a_a=False, hypotheses=()).write()
    plan = path / "plan.toml"
    plan.write_text(plan.read_text().replace('method = "pairs"', 'method = "anomalies"'))
    analyse(path)
    _, findings = told(RunFolder(path))
    step = findings["delay_steps"]
    assert step["value"] == pytest.approx(3_000, rel=0.05)
    assert "after the beginning of a series" in step["sentence"]
    assert {place["device"] for place in step["places"]} == {"bridge"}


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["probe.schedule=poisson"], 'only "regular"'),
        (["pairs.probes_per_block=1000"], "2000 or more"),
        (["pairs.reference=bridge"], "no meaning for study.method = anomalies"),
    ],
)
def test_series_that_show_no_period_are_refused(sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_plan("anomalies", sets=sets)
