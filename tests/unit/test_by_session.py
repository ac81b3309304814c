"""Made-up runs session by session: shares of modes, what the machine did, and counters that a machine may not have."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.bed import events, machine
from sojourn.bed.backends.local import LocalMachine
from sojourn.records import RunFolder
from sojourn.report import write_report

Make = Callable[..., Any]
SESSIONS, ROUNDS = 4, 12
SLOW_NS = 4000
SHARES = {"direct": [0.1, 0.1, 0.5, 0.5], "bridge": [0.3, 0.6, 0.3, 0.3]}


def in_sessions(block: dict[str, Any], probes: dict[str, Any], rng: np.random.Generator) -> None:
    """Each session is slower by 500 ns than the one before, and has a slower mode of its own share."""
    session = block["round"] * SESSIONS // ROUNDS
    count = len(probes["arrival_ns"])
    shares = SHARES.get(block["device"], [0.0] * SESSIONS)
    longer = 500 * session + SLOW_NS * (rng.random(count) < shares[session])
    for column in ("arrival_ns", "receive_call_ns"):
        probes[column] = [at if at is None else at + int(by) for at, by in zip(probes[column], longer, strict=True)]


def moment(second: float, **counts: Any) -> dict[str, Any]:
    return {
        "taken_tai_ns": int(second * 1e9),
        "cpu_ticks": {"user": int(50 * second), "idle": int(40 * second), "steal": int(10 * second)},
        "interrupts": {"LOC": int(100 * second), "RES": int(25 * second)},
        "softirqs": {"NET_RX": int(3000 * second)},
        "context_switches": int(700 * second),
        **counts,
    }


def bed(**counts: Any) -> dict[str, Any]:
    ends = [(10.0 * part, 10.0 * part + 5 + part) for part in range(SESSIONS)]
    parts = [
        {"part": part, "before": moment(first, **counts), "after": moment(last, **counts)}
        for part, (first, last) in enumerate(ends)
    ]
    return {"stable": {"machine": {"cpu": {"online": 2}}}, "parts": parts}


LOG = (
    *(
        event
        for part in range(SESSIONS)
        for event in ({"event": "started", "part": part, "bed": part}, {"event": "undisturbed", "value": 0.01 * part})
    ),
    {"event": "finished"},
)


@pytest.fixture
def run(synthetic: Make) -> Path:
    path: Path = synthetic(
        clock="TAI", rounds=ROUNDS, icmp_bytes=(64,), count=204, alter=in_sessions, log=LOG,
        bed=bed(counters={"missing": "this machine's processors offer no such counters"}),
        sessions=SESSIONS,
    ).write()  # fmt: skip
    analyse(path)
    return path


def test_share_of_each_mode_per_session_equals_the_truth(run: Path) -> None:
    found = pl.read_parquet(RunFolder(run).samples / "session_paths.parquet")
    for device, shares in SHARES.items():
        own = found.filter(device=device)
        assert own["mode"].unique().to_list() == [1, 2]
        slow = own.filter(mode=2)
        assert slow["share"].to_list() == pytest.approx(shares, abs=0.03)
        places = own.filter(session=0).sort("mode")["mode_ns"].to_list()
        assert places[1] - places[0] == pytest.approx(SLOW_NS, abs=100)
        assert own.group_by("session").agg(pl.col("share").sum())["share"].to_list() == pytest.approx([1.0] * SESSIONS)
    alone = found.filter(device="a/a")
    assert alone["share"].to_list() == [1.0] * SESSIONS
    assert np.diff(alone["median_ns"].to_numpy()) == pytest.approx(500, abs=30)


def test_machine_activity_is_the_increase_of_its_counters(run: Path) -> None:
    found = pl.read_parquet(RunFolder(run).samples / "session_machine.parquet")
    assert found["session"].to_list() == [0, 1, 2, 3]
    assert found["seconds"].to_list() == pytest.approx([5, 6, 7, 8])
    assert found["steal_share"].to_list() == pytest.approx([0.1] * 4)
    assert found["others_cores"].to_list() == pytest.approx([0.0, 0.01, 0.02, 0.03])
    for name, rate in (("interrupts", 125), ("timer_interrupts", 100), ("net_rx_softirqs", 3000)):
        assert (found[name] / found["seconds"]).to_list() == pytest.approx([rate] * 4)
    assert (found["context_switches"] / found["seconds"]).to_list() == pytest.approx([700] * 4)
    assert found["cycles"].to_list() == [None] * 4


def test_report_has_both_tables_and_names_missing_counters(run: Path) -> None:
    page = write_report(run).read_text()
    assert "Round trips by session" in page
    assert "The machine by session" in page
    assert "Cycles, instructions and cache misses: this machine&#39;s processors offer no such counters." in page
    paths = pl.read_csv(run / "report" / "tables" / "session_paths.csv")
    bridge = paths.filter(device="bridge")
    assert bridge["session"].to_list() == [1, 2, 3, 4]
    assert bridge["mode_2_percent"].to_list() == pytest.approx([30, 60, 30, 30], abs=3)
    machines = pl.read_csv(run / "report" / "tables" / "session_machine.csv")
    assert machines["steal_percent"].to_list() == pytest.approx([10.0] * 4)
    assert machines["context_switches_per_s"].to_list() == pytest.approx([700] * 4)
    assert "cycles" not in machines.columns


def test_cycle_counts_are_shown_if_available(synthetic: Make) -> None:
    parts = bed()
    for part in parts["parts"]:
        for at, count in (("before", 1_000), ("after", 5_000_001_000)):
            part[at]["counters"] = {"cycles": count, "instructions": 2 * count, "cache_misses": count // 1000}
    path = synthetic(
        clock="TAI", rounds=ROUNDS, icmp_bytes=(64,), alter=in_sessions, log=LOG, bed=parts,
        sessions=SESSIONS,
    ).write()  # fmt: skip
    analyse(path)
    write_report(path)
    machines = pl.read_csv(path / "report" / "tables" / "session_machine.csv")
    assert machines["cycles"].to_list() == [5_000_000_000] * 4
    assert machines["cache_misses"].to_list() == [5_000_000] * 4


def test_simulated_run_has_no_machine_counters(synthetic: Make) -> None:
    path = synthetic(bed=bed()).write()
    analyse(path)
    assert pl.read_parquet(RunFolder(path).samples / "session_machine.parquet").is_empty()


def test_machine_counters_include_context_switches_and_name_missing_ones() -> None:
    here = LocalMachine()
    first, then = here.moment(), here.moment()
    here.let_go()
    assert 0 < first["context_switches"] <= then["context_switches"]
    assert set(then["counters"]) in ({"missing"}, set(events.EVENTS))
    assert here.moment()["counters"] == {"missing": "counting has ended"}


def test_events_of_all_processors_are_counted() -> None:
    """Context switches and task clock, which the kernel counts itself, through the same calls."""
    software = {"switches": (1, 3), "clock": (1, 1)}
    counters = events.Counters(machine.online(), software)
    if counters.missing:
        pytest.skip(f"events cannot be counted here: {counters.missing}")
    first = counters.read()
    for _ in range(200):
        Path("/proc/self/stat").read_text()
    then = counters.read()
    counters.close()
    assert int(then["clock"]) > int(first["clock"]) >= 0


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, r"not permitted to this user \(kernel.perf_event_paranoid = "),
        (errno.ENOENT, "this machine's processors offer no such counters"),
        (errno.EMFILE, "not available: "),
    ],
)
def test_reason_for_missing_counters_is_reported(monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(events, "_open", refuse)
    counters = events.Counters([0, 1])
    assert list(counters.read()) == ["missing"]
    assert re.match(said, str(counters.missing))
