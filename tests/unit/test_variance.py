"""Method "variance": its design, what each bed holds, and a simulated run whose beds differ by their cores alone."""

from __future__ import annotations

import io
import json
from collections import Counter
from itertools import combinations, groupby
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.bed import BedSpec, machine
from sojourn.bed.backends.local import LocalMachine
from sojourn.bed.model import Topology
from sojourn.bed.switches import NO_STEERING, switch
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.conduct.draw import Draw
from sojourn.errors import MachineError, RequestError
from sojourn.methods.variance.ask import FACTORS, bed_of, design, held_by_bed
from sojourn.plan import load_plan
from sojourn.plan.types import DRAWN, SWITCHED
from sojourn.records.log import read_log
from sojourn.report import write_report
from sojourn.report.contents import all_figures
from sojourn.report.run import Run
from sojourn.statistics.components import factorial

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.plan import Plan


def quick(*sets: str, **how: Any) -> Plan:
    return load_plan("variance", quick=True, sets=sets, **how)


@pytest.mark.parametrize("factors", [(*DRAWN, "rps")[:k] for k in range(8)])
def test_design_is_orthogonal(factors: tuple[str, ...]) -> None:
    rows = design(factors)
    assert rows[0] == ()
    assert len(rows) == 2 ** min(3, len(factors))
    for one in factors:
        assert sum(one in row for row in rows) == len(rows) // 2
    for one, other in combinations(factors, 2):
        assert sum(one in row and other in row for row in rows) == len(rows) // 4
    assert factorial(np.array([[one not in row for one in factors] for row in rows], dtype=np.bool_)) is not None


def test_every_bed_holds_the_factors_of_the_design() -> None:
    held = Counter(held_by_bed(quick()))
    assert held == {row: 8 if not row else 4 for row in design(FACTORS)}
    assert held_by_bed(quick()) != sorted(held_by_bed(quick()))


def test_path_order_is_constant_on_a_bed_and_across_beds_that_hold_it() -> None:
    plan = quick('factors=["layout", "cores", "order"]')
    each = plan.pairs.rounds // plan.bed.sessions
    orders: dict[int, set[tuple[str, ...]]] = {}
    for (turn, visit), several in groupby(plan.expand(), key=lambda trial: (trial.round, trial.visit)):
        if visit == 0:
            orders.setdefault(turn // each, set()).add(tuple(trial.device for trial in several))
    assert {len(found) for found in orders.values()} == {1}
    held = held_by_bed(plan)
    kept = {frozenset(orders[bed]) for bed in orders if "order" in held[bed]}
    drawn = {frozenset(orders[bed]) for bed in orders if "order" not in held[bed]}
    assert len(kept) == 1
    assert len(drawn) > 2


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["sessions=35"], r"bed.sessions = 35: expected 36 or more: variance.beds = 8, and 4 of each row that holds"),
        (
            ["rounds=145"],
            r"pairs.rounds = 145: expected a multiple of bed.sessions x variance.starts = 72, from 144 on",
        ),
        (["rounds=72"], "from 144 on"),
        ([f"factors={[*DRAWN, 'idle', 'rps']}".replace("'", '"')], "variance.factors = .*: expected 7 at most"),
        (["device_cpu=own"], '"shared": variance.factors has "rps"'),
        (['factors=["moon"]'], 'each "layout" or "addresses"'),
        (["icmp_bytes=64,100"], "one size, one probe, one schedule and one interval"),
        (['bed.hold=["layout"]'], "bed.hold"),
    ],
)
def test_impossible_designs_are_refused(sets: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        quick(*sets)


def test_simulated_run_attributes_its_variance_to_the_cores(tmp_path: Path) -> None:
    plan = quick('factors=["cores", "layout"]', "sessions=20", "rounds=80", backend="sim")
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    started = [event for event in read_log(folder.log) if event["event"] == "started"]
    assert [(one["part"], one["bed"]) for one in started] == [(part, part // 2) for part in range(40)]
    assert [tuple(one["draw"]["held"]) for one in started[::2]] == held_by_bed(plan)
    verdict = analyse(folder.path)
    found = pl.read_parquet(folder.analysis / "results.parquet").filter(device="bridge", reference="wire")
    rows = {(row["quantity"], row["statistic"]): row for row in found.iter_rows(named=True)}
    bed, start, repeat = (rows["variance_component", name] for name in ("bed", "start", "repeat"))
    assert bed["ci_low"] < 200 < bed["ci_high"]
    assert start["ci_low"] == 0
    assert repeat["ci_high"] < 40
    assert rows["variance_component", "cores"]["ci_low"] < 200 < rows["variance_component", "cores"]["ci_high"]
    assert rows["variance_share", "cores"]["ci_low"] > 0
    assert rows["variance_share", "layout"]["ci_low"] == 0
    assert "cores causes" in verdict.sentence
    assert "no significant share: layout" in verdict.sentence
    page = write_report(folder.path, vector=True)
    assert "Causes of the variance between beds" in page.read_text()
    shares, deviations = all_figures(Run.read(folder.path))
    assert {one.title for one in shares.panels} == {"bridge over wire", "bridge over direct", "round trip over direct"}
    points = {
        (panel.title, row["name"]): row
        for panel in (*shares.panels, *deviations.panels)
        for data in panel.page()["datasets"].values()
        for row in data
        if "name" in row
    }
    share, among = points["bridge over wire", "cores"], points["bridge over wire", "beds"]
    own = rows["variance_share", "cores"]
    assert [share[name] for name in ("x", "low", "high")] == pytest.approx(
        [100 * own[name] for name in ("estimate", "ci_low", "ci_high")]
    )
    assert [among[name] for name in ("x", "low", "high")] == pytest.approx(
        [bed[name] / 1e3 for name in ("estimate", "ci_low", "ci_high")]
    )
    assert (page.parent / "figures/shares.svg").read_text().startswith("<svg")
    with folder.log.open("a") as log:
        log.write(json.dumps({"event": "bed", "left_out": {"layout": "it cannot be switched here"}}) + "\n")
    assert "; layout is left out: it cannot be switched here" in analyse(folder.path).sentence
    found = pl.read_parquet(folder.analysis / "results.parquet").filter(quantity="variance_share")
    assert set(found["statistic"]) == {"cores", "rest"}


def test_switched_factor_is_on_in_half_of_the_beds_that_do_not_hold_it() -> None:
    plan = quick()
    held = held_by_bed(plan)
    first: dict[int, Any] = {}
    for trial in plan.expand():
        first.setdefault(bed_of(plan, trial.round), trial)
    on = [plan.ask.switch(plan, first[bed]) for bed in range(plan.bed.sessions)]
    for row in set(held):
        several = [one for one, of in zip(on, held, strict=True) if of == row]
        asked = set(SWITCHED) & set(plan.variance.factors)
        assert asked == {"idle", "rps"}
        for name in asked:
            assert sum(one[name] for one in several) == (0 if name in row else len(several) / 2)
        assert len({tuple(one.values()) for one in several}) == 2 ** len(asked - set(row))
    assert on != sorted(on, key=lambda one: tuple(one.values()))
    assert Draw(1, 2, (), {"idle": True, "rps": False}).told()["on"] == ["idle"]
    assert "on" not in Draw(1).told()


@pytest.mark.parametrize("study", ["bridge-latency", "one-way"])
def test_other_studies_switch_no_factor(study: str) -> None:
    plan = load_plan(study, backend="sim")
    assert plan.ask.switch(plan, next(iter(plan.expand()))) == {}


class Here:
    """A bed's backend that notes what is written."""

    simulated = False

    def __init__(self, *, may_steer: bool = True, asleep: str | None = None) -> None:
        self.may_steer, self.asleep = may_steer, asleep
        self.written: dict[str, str] = {}
        self.polling: bool | None = None

    def cores(self) -> list[int]:
        return [0, 1, 33]

    def keep_awake(self, *, polling: bool) -> str | None:
        self.polling = polling
        return self.asleep

    def put(self, _host: str, path: str, text: str) -> None:
        if not self.may_steer:
            raise MachineError("no")
        self.written[path] = text


def switched(backend: Any, switches: dict[str, bool], **spec: Any) -> dict[str, str]:
    asked = BedSpec(devices=("bridge",), switches=switches, **spec)
    return switch(backend, Topology.of_spec(asked), asked)


@pytest.mark.parametrize(("on", "mask"), [(True, "00000002,00000003"), (False, "00000000")])
def test_packet_steering_of_every_port_is_as_drawn(on: bool, mask: str) -> None:
    here = Here()
    assert switched(here, {"idle": on, "rps": on}) == {}
    assert here.polling is on
    assert set(here.written.values()) == {mask}
    steered = {path.split("/")[4] for path in here.written}
    assert {"a-direct", "b-direct", "d-bridge-1l"} <= steered


def test_factor_that_cannot_be_switched_is_omitted_with_the_reason() -> None:
    here = Here(may_steer=False, asleep="this machine has no idle driver")
    assert switched(here, {"idle": False, "rps": True}) == {
        "idle": "this machine has no idle driver", "rps": NO_STEERING,
    }  # fmt: skip
    assert switched(Here(), {}) == {}
    simulated: Any = SimpleNamespace(simulated=True)
    assert switched(simulated, {"idle": True, "rps": True}) == {}


@pytest.mark.parametrize(
    ("driver", "device", "why"),
    [(None, "request", "this machine has no idle driver"), ("haltpoll", "no/request", "idle states cannot be asked")],
)
def test_processors_that_cannot_poll_when_idle_report_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str | None, device: str, why: str
) -> None:
    monkeypatch.setattr(machine, "idle_driver", lambda: driver)
    monkeypatch.setattr(machine, "DMA_LATENCY", tmp_path / device)
    assert (LocalMachine().keep_awake(polling=True) or "").startswith(why)


def test_idle_polling_is_requested_while_the_bed_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "idle_driver", lambda: "haltpoll")
    monkeypatch.setattr(machine, "DMA_LATENCY", request := tmp_path / "request")
    here = LocalMachine()
    assert here.keep_awake(polling=False) is None
    assert request.read_bytes() == b""
    assert here.keep_awake(polling=True) is None
    assert request.read_bytes() == bytes(4)
    here.let_go()
