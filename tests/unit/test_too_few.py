"""Too few beds for an interval are said once, of every method that measures on several, and not where beds suffice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.analysis import analyse
from sojourn.analysis.rows import Row
from sojourn.analysis.too_few import too_few
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.plan import load_plan
from sojourn.statistics.interval import Interval
from tests.unit import made_up_costs
from tests.unit.made_up_suites import Device, Suite
from tests.unit.test_tcp_load import Truth, made_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

BEDS = "2 beds are too few for an interval over beds: at least 3 are needed"


def simulated(study: str, *sets: str) -> Callable[[Path, int], Path]:
    """A run of a built-in study over simulated lines."""

    def make(path: Path, beds: int) -> Path:
        plan = load_plan(study, sets=[f"bed.sessions={beds}", f"trials.rounds={2 * beds}", *sets], backend="sim")
        folder = create_folder(plan, path)
        conduct(plan, folder, Screen())
        return folder.path

    return make


def suite(rfc: str) -> Callable[[Path, int], Path]:
    """Searches for the zero-loss rate, one on each bed."""

    def make(path: Path, beds: int) -> Path:
        of = Suite(rfc, goals=(0.0,), sum_seconds=1.0)
        for part in range(beds):
            of.session(part)
            rate = 280_000.0 + 7_000.0 * part
            head = of.head("throughput", 64, part)
            of.step(head, Device(1e9), rate, 1.0, lost=0)
            of.step(head, Device(1e9), 1.01 * rate, 1.0, lost=100)
            of.result(head, 0.0, lower_pps=rate, upper_pps=1.01 * rate)
        return of.write(path)

    return make


def logged(path: Path, beds: int) -> Path:
    sets = [f"bed.sessions={beds}", "costs.repetitions=12"]
    return made_up_costs.write(path, made_up_costs.Machine(bed_sd=0.01), sets).path


def loaded(path: Path, beds: int) -> Path:
    return made_up(path, Truth(), sessions=beds, sets=["load.rounds=6"]).path


SHORT = ("trials.duration=5ms", "stream.payload_bytes=46")
RUNS: dict[str, Callable[[Path, int], Path]] = {
    "throughput": simulated("throughput", *SHORT, "stream.schedule=regular", "stream.rate=10kpps"),
    "loss": simulated("loss", *SHORT, "stream.schedule=regular", "stream.rate=10kpps", "stream.to=unicast"),
    "one-way": simulated("one-way", *SHORT, "stream.schedule=regular", "stream.rate=10kpps"),
    "rfc2544": suite("rfc2544"),
    "rfc2889": suite("rfc2889"),
    "rfc8219": suite("rfc8219"),
    "tcp-cost": logged,
    "tcp-load": loaded,
}


def told(path: Path) -> list[dict[str, Any]]:
    analyse(path)
    found = json.loads((path / "analysis/verdict.json").read_text())["findings"]
    return [one for one in found if one["name"] == "too_few_pairs"]


@pytest.mark.parametrize("beds", [2, 3])
@pytest.mark.parametrize("method", RUNS)
def test_two_beds_are_too_few_and_three_are_not(method: str, beds: int, tmp_path: Path) -> None:
    found = told(RUNS[method](tmp_path / "run", beds))
    assert [one["sentence"] for one in found] == ([BEDS] if beds == 2 else [])


@pytest.mark.parametrize("beds", [2, 3])
def test_two_beds_of_probes_are_too_few_and_three_are_not(synthetic: Callable[..., Any], beds: int) -> None:
    def per_bed(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
        del rng
        if block["device"] == "bridge":
            probes["arrival_ns"] = probes["arrival_ns"] + 50 * (block["round"] * beds // 24)

    path = synthetic(rounds=24, icmp_bytes=(64,), sessions=beds, alter=per_bed).write()
    assert [one["sentence"] for one in told(path)] == ([BEDS] if beds == 2 else [])


def row(quantity: str, statistic: str, n: int, sessions: int | None, low: float | None = None) -> Row:
    high = None if low is None else 3.0
    return Row("bridge", quantity, statistic, Interval(2.0, low, high, 0.95, n), "ns", sessions=sessions)


@pytest.mark.parametrize(
    ("figure", "sessions", "said"),
    [
        (row("device_latency", "mean", 5, None), 1, "5 pairs give no interval of 95 %: at least 6 are needed"),
        (row("latency_under_load", "mean", 1, None), 1, "1 round give no interval of 95 %: at least 6 are needed"),
        (row("device_latency", "mean", 5, None, low=1.0), 1, None),
        (row("throughput_pps", "mean", 1, None), 1, None),  # one trial has none, and no plan with one promises one
        (row("departure_interval", "mean", 4, 2), 2, BEDS),
        (row("loss_run", "mean", 4, 2), 6, None),  # runs of losses were met on two beds of six
        (row("loss_ratio", "ratio", 2, 2), 6, BEDS),  # the cell itself was measured on two beds of six
        (row("device_latency", "mean", 4, 4), 4, "4 pairs on 4 beds give no interval of 95 %"),
    ],
)
def test_finding_too_few_sessions_is_stated_per_figure(figure: Row, sessions: int, said: str | None) -> None:
    found = too_few([figure], sessions)
    assert len(found) == (said is not None)
    assert all(one.sentence.startswith(said or "") for one in found)
