"""What logging costs, measured on a real bed: with a double of the log, which attaches nothing and costs nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.bed import cgroups
from sojourn.conduct import Screen, conduct, create_folder, resume
from sojourn.errors import MachineError
from sojourn.plan import load_plan
from sojourn.records import read_table
from sojourn.watch.follow import FINISHED, Follower
from tests.net.busy_machine import retried, undisturbed

if TYPE_CHECKING:
    from sojourn.plan import Plan
    from sojourn.records import RunFolder

FAKE = Path(__file__).parents[1] / "unit/fake_tcplog.py"
SHORT = (
    *("ppl=1,10", "flows=1,2", "where=sender,both", "controls=disabled", "slice=50ms", "grace=2ms", "ramp=20ms"),
    *("repetitions=2", "statistics=1", "pause=1ms"),
)
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="cgroups of hosts need root"),
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3 here: apt-get install iperf3"),
]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the double keeps what it is asked."""
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(FAKE))
    monkeypatch.setenv("FAKE_ASKED", str(tmp_path / "asked"))
    return tmp_path / "asked"


def plan_of(*sets: str) -> Plan:
    return load_plan("tcplog-cost", sets=[*SHORT, *sets])


def measured(plan: Plan, path: Path) -> RunFolder:
    folder = create_folder(plan, path)
    conduct(plan, folder, Screen(io.StringIO()))
    return folder


@retried
def test_every_pair_has_adjacent_slices_with_and_without_the_log(tmp_path: Path, asked: Path) -> None:
    plan = plan_of()
    folder = measured(plan, tmp_path / "run")
    rows = read_table(folder.records, "tcp_slices").frame
    pairs = rows.filter(pl.col("pair") >= 0)
    slices = plan.expand()
    follower = Follower(folder.log)
    assert follower.poll()
    assert (follower.state, len(follower.done), follower.total) == (FINISHED, len(slices), len(slices))
    assert pairs.height == len(slices)
    for first, second in zip(slices[::2], slices[1::2], strict=True):
        two = pairs.filter(pl.col("pair") == first.block // 2).sort("visit")
        assert two["mode"].to_list() == [first.factors.mode, second.factors.mode]
        gap_ns = int(two["started_ns"][1]) - int(two["ended_ns"][0])
        assert gap_ns >= 2_000_000
        with undisturbed():
            assert gap_ns < 200_000_000
            assert two["received_bytes"].min() > 100_000  # type: ignore[operator]
    logged = pairs.filter(pl.col("mode") == "on")
    assert logged["skipped"].min() == logged["skipped_full"].min() == 2
    both = logged.filter(pl.col("where") == "both")
    assert (both["packets_in"] == 200).all()
    assert pairs.filter(pl.col("mode") != "on")["packets_in"].null_count() == pairs.height - logged.height
    assert rows.filter("statistics").height == 4 * 4
    asked_of = [json.loads(line) for line in asked.read_text().splitlines()]
    assert {Path(one["attach"]).name for one in asked_of} == {"a", "b"}
    assert not any(one["keep"] for one in asked_of if one["do"] == "begin")
    costs = read_table(folder.records, "tcp_costs").frame
    with undisturbed():
        assert (costs["cpu_time_ns"] > 0).all()
    assert set(costs["direction"]) == {"in", "out"}
    # Of this process alone: other tests have beds of their own meanwhile.
    assert not [mark for _, mark in cgroups.left() if mark.controller.pid == os.getpid()]


@retried
def test_path_mtu_carries_packets_of_one_segment(tmp_path: Path, asked: Path) -> None:
    folder = measured(plan_of("controls=[]", "ppl=1", "flows=1", "where=sender", "statistics=0"), tmp_path / "run")
    rows = read_table(folder.records, "tcp_slices").frame.with_columns(
        each=pl.col("received_bytes") / pl.col("frames").cast(pl.Float64)
    )
    # Bytes and frames are in two files of the kernel, which are read one after the other.
    assert rows.filter(pl.col("path") == "mtu")["each"].max() <= 1.05 * 1514  # type: ignore[operator]
    with undisturbed():
        assert rows.filter(pl.col("path") == "gso")["each"].mean() > 5_000  # type: ignore[operator]


def test_form_runs_starts_one_iperf3_per_slice(tmp_path: Path, asked: Path) -> None:
    few = ("form=runs", "slice=1s", "ppl=1", "flows=1", "where=sender", "controls=[]", "a_a=false", "path=gso")
    folder = measured(plan_of(*few, "repetitions=1"), tmp_path / "run")
    rows = read_table(folder.records, "tcp_slices").frame
    assert sorted(rows["mode"]) == ["off", "on"]


def test_run_continues_after_its_log_died(tmp_path: Path, asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("path=gso", "flows=1", "statistics=0", "at_once=1")
    folder = create_folder(plan, tmp_path / "run")
    monkeypatch.setenv("FAKE_DIE_AT", str(plan.expand()[-1].batch))
    with pytest.raises(MachineError, match=r"programs are gone.*--resume"):
        conduct(plan, folder, Screen(io.StringIO()))
    monkeypatch.delenv("FAKE_DIE_AT")
    kept = read_table(folder.records, "tcp_slices").frame
    assert 0 < kept.height < len(plan.expand())
    resume(folder, Screen(io.StringIO()))
    pairs = read_table(folder.records, "tcp_slices").frame["pair"]
    assert sorted(set(pairs)) == list(range(len(plan.expand()) // 2))


@pytest.mark.parametrize("cut", [True, False])
def test_run_continues_after_its_log_was_interrupted_and_is_doubtful(
    tmp_path: Path, asked: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    plan = plan_of("path=gso", "flows=1", "where=sender", "statistics=0", "at_once=1", "a_a=false", "controls=[]")
    if cut:
        monkeypatch.setenv("FAKE_INTERRUPT_AT", str(plan.expand()[-1].batch))
    folder = measured(plan, tmp_path / "run")
    assert read_table(folder.records, "tcp_slices").frame.height == len(plan.expand())
    found = {one["name"]: one for one in analyse(folder.path).findings}
    assert ("log_interrupted" in found) == cut
    if cut:
        assert found["log_interrupted"]["severity"] == "doubtful"
        assert "a gap in 1 trial: the program `packet_in` was detached" in found["log_interrupted"]["sentence"]
