"""The analysis of made-up runs: truth in, number out; every finding provoked once, none where all is clean."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from sojourn.analysis import analyse
from sojourn.analysis.hypotheses import Margin
from sojourn.analysis.hypotheses import _judge as judge_hypothesis
from sojourn.errors import RequestError
from sojourn.methods import load, packages
from sojourn.records import FINDINGS, RunFolder
from sojourn.records.findings import label
from sojourn.statistics.interval import Interval
from sojourn.statistics.line import Deviations

if TYPE_CHECKING:
    from types import FrameType

Make = Callable[..., Any]


def results(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(RunFolder(path).results.read_text())
    return rows


def the(path: Path, **wanted: Any) -> dict[str, Any]:
    found = [row for row in results(path) if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows for {wanted}"
    return found[0]


def names(path: Path) -> set[str]:
    return {one["name"] for one in json.loads(RunFolder(path).verdict.read_text())["findings"]}


@pytest.fixture
def clean(synthetic: Make) -> Path:
    path: Path = synthetic(latency_ns={"wire": 400.0, "bridge": 1300.0}).write()
    analyse(path)
    return path


def test_a_clean_run_is_trusted_and_has_no_finding(clean: Path) -> None:
    verdict = json.loads(RunFolder(clean).verdict.read_text())
    assert verdict["findings"] == []
    assert verdict["verdict"] == "trusted"
    assert verdict["sentence"].startswith("Simulated, not measured: The Linux bridge adds 0.94")
    assert "; another bed, reboots, other days, and request or reply by itself are not covered; " in verdict["sentence"]
    assert verdict["sentence"].endswith("no doubtful finding.")
    assert [one["outcome"] for one in verdict["hypotheses"]] == ["supported"]


def test_latency_per_cell_pooled_and_by_reference_equals_the_truth(clean: Path) -> None:
    for size in (64, 772, 1480):
        row = the(clean, device="bridge", reference="direct", quantity="device_latency", statistic="mean",
                  icmp_bytes=size)  # fmt: skip
        assert row["estimate"] == pytest.approx(1300 + 0.4 * (size + 38), abs=25)
        assert row["n"] == 12
        assert row["level"] == 0.95
        assert row["sessions"] is None
    pooled = the(clean, device="bridge", reference="wire", quantity="device_latency", statistic="pooled")
    assert pooled["ci_low"] - 5 <= 900 + 0.4 * (772 + 38) <= pooled["ci_high"] + 5
    assert pooled["icmp_bytes"] is None
    assert pooled["probe"] == "icmp"


def test_fitted_line_over_frame_size_equals_the_truth(clean: Path) -> None:
    slope = the(clean, device="bridge", reference="direct", quantity="latency_slope")
    constant = the(clean, device="bridge", reference="direct", quantity="latency_intercept")
    assert slope["ci_low"] <= 0.4 <= slope["ci_high"]
    assert constant["ci_low"] <= 1300 <= constant["ci_high"]
    whole = the(clean, device="direct", reference=None, quantity="latency_slope")
    assert whole["estimate"] == pytest.approx(0.3, abs=0.03)


def test_a_a_control_contains_zero_and_gives_the_resolution_of_the_bed(clean: Path) -> None:
    pooled = the(clean, device="a/a", quantity="device_latency", statistic="pooled")
    assert pooled["level"] == the(clean, quantity="resolution")["level"] == 0.95
    assert pooled["ci_low"] < 0 < pooled["ci_high"]
    assert pooled["n"] == 36
    assert 0 < the(clean, quantity="resolution")["estimate"] < 40


def test_quantiles_depend_on_sample_size_and_device_latency_has_none(clean: Path) -> None:
    rows = results(clean)
    assert {row["statistic"] for row in rows if row["quantity"] == "rtt"} == {"min", "mean", "p50", "p90", "max", "sd"}
    of_devices = {row["statistic"] for row in rows if row["quantity"] == "device_latency"}
    assert of_devices == {"mean", "hodges_lehmann", "pooled", "sd"}
    assert {row["statistic"] for row in rows if row["quantity"] == "rtt_shift"} == {"p50"}


def test_every_row_names_its_clock_and_timestamp_source_and_is_finite(clean: Path) -> None:
    for row in results(clean):
        assert row["clock"] == "simulated"
        assert row["source"]
        assert row["unit"] in ("ns", "1", "ns/byte", "ns^2")
        assert row["estimate"] is not None
    frame = pl.read_parquet(RunFolder(clean).analysis / "results.parquet")
    assert frame.height == len(results(clean))


def test_analysis_files_are_synced_before_they_are_renamed(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[tuple[int, int], int] = {}
    named: list[Path] = []
    sync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        found = os.fstat(descriptor)  # by what a file is: it may have no name yet
        written[found.st_dev, found.st_ino] = found.st_size
        sync(descriptor)

    def renamed(draft: Path, to: Path) -> Path:
        found = draft.stat()
        assert written[found.st_dev, found.st_ino] == found.st_size > 0
        named.append(to)
        return rename(draft, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    analyse(clean)
    analysis = RunFolder(clean).analysis
    there = [path for path in analysis.rglob("*") if path.is_file()]
    [draft] = {analysis.parent / path.relative_to(analysis.parent).parts[0] for path in named}
    assert sorted(path.relative_to(draft) for path in named) == sorted(path.relative_to(analysis) for path in there)
    assert {"results.json", "results.parquet", "verdict.json", "budgets.json"} <= {path.name for path in there}


def test_analysis_is_bitwise_reproducible(clean: Path) -> None:
    folder = RunFolder(clean)
    first = {path.name: path.read_bytes() for path in sorted(folder.analysis.rglob("*.*"))}
    (folder.analysis / "left-over.txt").write_text("from before")
    analyse(clean)
    assert {path.name: path.read_bytes() for path in sorted(folder.analysis.rglob("*.*"))} == first


def test_sample_files_contain_the_data_of_the_figures(clean: Path) -> None:
    columns = {
        "rtt_quantiles": {"device", "exceedance", "rtt_ns", "icmp_bytes"},
        "timeline": {"device", "elapsed_s", "rtt_ns", "interval_ns"},
        "blocks": {"block", "device", "mean_rtt_ns", "lost"},
        "pairs": {"device", "reference", "latency_ns", "round"},
        "sizes": {"device", "reference", "frame_bytes", "estimate_ns"},
        "lines": {"device", "reference", "frame_bytes", "ci_low_ns", "ci_high_ns"},
        "pacing_errors": {"device", "exceedance", "error_ns"},
    }
    for name, wanted in columns.items():
        frame = pl.read_parquet(RunFolder(clean).samples / f"{name}.parquet")
        assert wanted <= set(frame.columns)
        assert frame.height > 0


def test_number_of_calls_hardly_grows_with_the_number_of_probes(synthetic: Make) -> None:
    """A loop over probes would be ten times the calls, whatever else the machine does."""
    calls = [calls_of_an_analysis(synthetic(rounds=rounds).write()) for rounds in (6, 60)]
    print(f"calls: {calls}")
    assert calls[1] < 1.5 * calls[0]


def calls_of_an_analysis(path: Path) -> int:
    """How many Python and built-in functions the analysis calls."""
    analyse(path)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    sys.setprofile(count)
    try:
        analyse(path)
    finally:
        sys.setprofile(None)
    return calls


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no plan\.toml"):
        analyse(tmp_path)


def test_an_empty_run_is_doubtful_and_not_an_error(synthetic: Make) -> None:
    path = synthetic(rounds=0).write()
    assert analyse(path).verdict == "doubtful"


# Findings: what provokes each. An alteration gets the block, its probes and a source of chance.


def hold_every_50th() -> Callable[[Any, Any, Any], None]:
    """A device that counts its frames and holds every fiftieth, whatever the pauses."""
    passed = 0

    def hold(block: Any, probes: Any, rng: Any) -> None:
        nonlocal passed
        del rng
        if block["device"] == "bridge":
            probes["arrival_ns"] = probes["arrival_ns"] + 30_000 * ((passed + probes["seq"]) % 50 == 49)
            passed += 44

    return hold


def modes(block: Any, probes: Any, rng: Any) -> None:
    if block["device"] == "bridge":
        probes["arrival_ns"] = probes["arrival_ns"] + 5000 * (rng.random(44) < 0.3)


def recurring(block: Any, probes: Any, rng: Any) -> None:
    """Half of the probes over the bridge are slow for 0.3 s of each 2 s."""
    if block["device"] == "bridge":
        due = np.mod(probes["intended_ns"], 2 * 10**9) < 3 * 10**8
        probes["arrival_ns"] = probes["arrival_ns"] + 20_000 * (due & (rng.random(44) < 0.2))


def modes_of_all(block: Any, probes: Any, rng: Any) -> None:
    del block
    probes["arrival_ns"] = probes["arrival_ns"] + 5000 * (rng.random(44) < 0.3)


def drifting(block: Any, probes: Any, rng: Any) -> None:
    del rng
    probes["arrival_ns"] = probes["arrival_ns"] + 20 * block["block"]


def cold(block: Any, probes: Any, rng: Any) -> None:
    del block, rng
    probes["arrival_ns"] = probes["arrival_ns"] + (3000 * np.exp(-probes["seq"] / 8)).astype(int)


def settling(block: Any, probes: Any, rng: Any) -> None:
    del rng
    if block["device"] == "bridge" and block["round"] < 10:
        probes["arrival_ns"] = probes["arrival_ns"] + 3000


def stalled(block: Any, probes: Any, rng: Any) -> None:
    del rng
    if block["device"] == "direct" and block["round"] == 3:
        probes["arrival_ns"] = probes["arrival_ns"] + 4_000_000 * (probes["seq"] == 30)


def held_now_and_then(block: Any, probes: Any, rng: Any) -> None:
    """A device that holds one probe in a thousand by 1 ms: its mean is 0.5 us one way, and most pairs are near zero."""
    if block["device"] == "bridge":
        probes["arrival_ns"] = probes["arrival_ns"] + 1_000_000 * (rng.random(44) < 0.001)


def late_sender(block: Any, probes: Any, rng: Any) -> None:
    del block
    behind = 150_000 * (rng.random(44) < 0.2)
    for name in ("send_call_ns", "departure_ns", "arrival_ns", "receive_call_ns"):
        probes[name] = probes[name] + behind


def slow_sender(block: Any, probes: Any, rng: Any) -> None:
    del block, rng
    behind = probes["seq"] * 80_000
    for name in ("send_call_ns", "departure_ns", "arrival_ns", "receive_call_ns"):
        probes[name] = probes[name] + behind


def stepped(block: Any, probes: Any, rng: Any) -> None:
    del probes, rng
    if block["block"] >= 100:
        block["started_raw_ns"] -= 3_000_000
        block["ended_raw_ns"] -= 3_000_000


def dropped(block: Any, probes: Any, rng: Any) -> None:
    del probes, rng
    block["local_drops"] = int(block["block"] == 7)


def answered_twice(block: Any, probes: Any, rng: Any) -> None:
    del block
    probes["replies"] = probes["replies"] + (rng.random(44) < 0.01)


def overtaken(block: Any, probes: Any, rng: Any) -> None:
    del block
    probes["reordered"] = rng.random(44) < 0.01


def after_the_timeout(block: Any, probes: Any, rng: Any) -> None:
    del block
    probes["late"] = rng.random(44) < 0.01


def mixed(block: Any, probes: Any, rng: Any) -> None:
    del rng
    if block["block"] % 7 == 0:
        probes["departure_source"] = ["user"] * 10 + ["simulated"] * 34


def by_the_program(block: Any, probes: Any, rng: Any) -> None:
    del block, rng
    probes["departure_source"] = probes["arrival_source"] = ["user"] * 44


def control_apart(block: Any, probes: Any, rng: Any) -> None:
    del rng
    if block["device"] == "a/a":
        probes["arrival_ns"] = probes["arrival_ns"] + 600


PROVOCATIONS: dict[str, dict[str, Any]] = {
    "periodic_delay": {"alter": hold_every_50th()},
    "periodic_in_time": {"rounds": 150, "alter": recurring},
    "contended_heavily": {
        "clock": "TAI",
        "bed": {"stable": {"machine": {"cpu": {"online": 2}}}},
        "log": ({"event": "contended", "value": 1.0, "sentence": "others took 1.0 cores"}, {"event": "finished"}),
    },
    "several_modes": {"alter": modes_of_all},
    "modes_differ": {"alter": modes},
    "drift": {"alter": drifting},
    "unsteady": {"alter": cold},
    "interference": {"alter": stalled},
    "estimators_disagree": {"rounds": 120, "alter": held_now_and_then},
    "sender_late": {"alter": late_sender},
    "tester_limited": {"alter": slow_sender},
    "clock_stepped": {"alter": stepped},
    "local_drops": {"alter": dropped},
    "duplication": {"alter": answered_twice},
    "reordering": {"alter": overtaken},
    "late_replies": {"alter": after_the_timeout},
    "mixed_timestamps": {"alter": mixed},
    "user_timestamps": {"alter": by_the_program},
    "a_a_nonzero": {"alter": control_apart},
    "below_floor": {"latency_ns": {"bridge": -900.0}},
    "too_few_pairs": {"rounds": 5},
    "debug_build": {"metadata": {"profile": "debug"}},
    "incomplete": {"log": ({"event": "started"}, {"event": "interrupted"})},
    "offload_on": {"bed_extra": "offloads = true"},
    "contended": {"log": ({"event": "contended", "sentence": "load 5 on 2 cores"}, {"event": "finished"})},
}


# What else may be found: a sender that is slow is also late, and the other way round.
COMPANIONS = {
    "modes_differ": {"several_modes"},
    "periodic_in_time": {"estimators_disagree"},
    "interference": {"estimators_disagree"},
    "mixed_timestamps": {"user_timestamps"},
    "sender_late": {"tester_limited"},
    "tester_limited": {"sender_late"},
}


@pytest.mark.parametrize("name", PROVOCATIONS)
def test_each_provoked_finding_is_raised_and_no_other(synthetic: Make, name: str) -> None:
    path = synthetic(**{"rounds": 24, "icmp_bytes": (64,), **PROVOCATIONS[name]}).write()
    verdict = analyse(path)
    assert name in names(path)
    assert names(path) <= {name} | COMPANIONS.get(name, set())
    grade = "trusted" if FINDINGS[name].severity == "note" else FINDINGS[name].severity
    assert verdict.verdict == grade


def test_device_with_occasional_stalls_is_reported_by_its_mean(synthetic: Make) -> None:
    path = synthetic(rounds=200, icmp_bytes=(64,), latency_ns={"bridge": 0.0}, per_byte_ns={}, alter=held_now_and_then)
    analyse(path := path.write())
    mean = the(path, device="bridge", quantity="device_latency", statistic="mean")
    beside = the(path, device="bridge", quantity="device_latency", statistic="hodges_lehmann")
    assert mean["ci_low"] <= 500 <= mean["ci_high"]
    assert beside["ci_high"] < 100
    assert "estimators_disagree" in names(path)


def test_losses_are_counted_with_an_interval(synthetic: Make, losing: Callable[..., None]) -> None:
    def lossy(block: Any, probes: Any, rng: Any) -> None:
        if block["device"] == "bridge":
            losing(probes, rng.random(44) < 0.02)

    path = synthetic(rounds=24, icmp_bytes=(64,), alter=lossy).write()
    assert analyse(path).verdict == "trusted"
    assert names(path) == {"loss"}
    row = the(path, device="bridge", quantity="loss")
    assert row["ci_low"] <= 0.02 <= row["ci_high"]
    assert row["probes"] == 24 * 2 * 40
    assert row["findings"] == ["loss"]
    assert the(path, device="direct", quantity="loss")["estimate"] == 0
    latency = the(path, device="bridge", quantity="device_latency", statistic="mean")
    assert latency["ci_low"] - 5 <= 1300 + 0.4 * 102 <= latency["ci_high"] + 5


def test_truncated_record_is_used_up_to_the_damage_and_reported(synthetic: Make) -> None:
    path = synthetic(rounds=12).write()
    probes = RunFolder(path).records / "probes-000.arrow"
    probes.write_bytes(probes.read_bytes()[: probes.stat().st_size * 8 // 10])
    verdict = analyse(path)
    assert verdict.verdict == "doubtful"
    assert names(path) == {"truncated_record", "incomplete"}
    assert the(path, device="bridge", quantity="device_latency", statistic="pooled")["n"] >= 8


def test_slow_transient_of_a_device_is_the_finding_unsteady(synthetic: Make) -> None:
    path = synthetic(rounds=30, alter=settling).write()
    analyse(path)
    assert "unsteady" in names(path)


def test_every_finding_is_provoked_by_a_test() -> None:
    tests = Path(__file__).parents[1].glob("*/test_*.py")
    others = "".join(path.read_text() for path in tests if path != Path(__file__))
    elsewhere = {"loss", "truncated_record"} | {name for name in FINDINGS if f'"{name}"' in others}
    assert set(PROVOCATIONS) | elsewhere == set(FINDINGS)


ROOT = Path(__file__).parents[2]
OF_PAIRS = "tests/unit/test_analysis.py::test_true_hypothesis_is_supported_and_false_one_rejected"
OF_DELAYS = "test_too_short_or_rate_dependent_delays_are_found_and_others_are_not"
OF_CONTROLS = "tests/unit/test_costs.py::test_hypotheses_of_the_controls_are_evaluated"
OF_KNOWN = "tests/unit/test_tcp_hypotheses.py::test_true_hypotheses_about_tcp_are_supported_and_false_ones_rejected"
BOTH_WAYS = {
    "bbr-share-falls": (OF_KNOWN,),
    "cascade-adds": (OF_PAIRS,),
    "constant-plus-per-byte": (OF_PAIRS,),
    "cubic-region": (OF_KNOWN,),
    "delay-independent-of-rate": (f"tests/unit/test_emulator.py::{OF_DELAYS}",),
    "detail-costs": ("tests/unit/test_costs.py::test_hypothesis_detail_costs_uses_one_margin",),
    "disabled-is-free": (OF_CONTROLS,),
    "fan-in-total": ("tests/unit/test_links.py::test_senders_fill_their_links_or_share_one_fairly",),
    "full-at-one-product": (OF_KNOWN,),
    "loss-as-configured": (
        "tests/unit/test_emulator.py::test_configured_losses_are_supported_only_by_enough_evidence",
    ),
    "mathis": (OF_KNOWN,),
    "md1": ("tests/unit/test_links.py::test_poisson_frames_wait_as_in_m_d_1_and_regular_ones_do_not",),
    "minimum-frame-time": (
        "tests/unit/test_links.py::test_frames_follow_each_other_as_fast_as_the_link_serialises_them",
    ),
    "no-shortfall": (f"tests/unit/test_emulator.py::{OF_DELAYS}",),
    "no-tick": ("tests/unit/test_emulator.py::test_hypothesis_no_tick_is_supported_without_and_rejected_with_a_tick",),
    "nothing-skipped": ("tests/unit/test_costs.py::test_zero_skips_in_few_slices_are_inconclusive",),
    "phase-saw-tooth": ("tests/unit/test_phase.py::test_the_delay_falls_with_the_phase_as_the_link_serves_frames",),
    "placebo-explains": (OF_CONTROLS,),
    "rate-independent": (OF_PAIRS,),
    "reno-share-by-rtt": (OF_KNOWN,),
    "slope-is-sum-of-rates": ("tests/unit/test_links.py::test_slope_is_the_sum_of_8_over_r_despite_noise",),
    "stages-sum": (
        "tests/unit/test_stages.py::test_stages_sum_to_the_whole_unless_frames_without_a_stamp_take_longer",
    ),
    "window-or-rate": (
        "tests/unit/test_tcp_windows.py::test_formulas_of_rfc_6349_are_confirmed_on_a_conforming_path",
        "tests/unit/test_tcp_windows.py::test_throughput_a_tenth_below_the_formula_rejects_the_hypothesis",
    ),
}
"""Where each hypothesis is provoked to be supported, and to be rejected."""


def test_every_hypothesis_is_tested_as_supported_and_as_rejected() -> None:
    assert set(BOTH_WAYS) == {name for method in packages() for name in load(method, "ask").ASK.hypotheses}
    for path, _, test in (one.partition("::") for places in BOTH_WAYS.values() for one in places):
        text = (ROOT / path).read_text()
        assert f"def {test}(" in text
        assert '"supported"' in text
        assert '"rejected"' in text


def machine(load: float, stolen: int) -> dict[str, Any]:
    ticks = {"user": 1000, "idle": 1000, "steal": 0}
    later = {"user": 2000, "idle": 2000, "steal": stolen}
    parts = [{"part": 0, "before": {"load_average": [load], "cpu_ticks": ticks}, "after": {"cpu_ticks": later}}]
    return {"stable": {"machine": {"cpu": {"online": 2}}}, "parts": parts}


@pytest.mark.parametrize(("load", "stolen", "found"), [(0.4, 0, False), (2.5, 0, True), (0.4, 50, True)])
def test_load_of_the_machine_is_read_from_the_bed_facts(synthetic: Make, load: float, stolen: int, found: bool) -> None:
    path = synthetic(clock="TAI", bed=machine(load, stolen)).write()
    analyse(path)
    assert names(path) == ({"contended"} if found else set())


def test_load_measured_during_the_run_overrides_the_load_before_it(synthetic: Make) -> None:
    log = ({"event": "undisturbed", "value": 0.01}, {"event": "finished"})
    analyse(path := synthetic(clock="TAI", bed=machine(2.5, 0), log=log).write())
    assert names(path) == set()


def test_most_disturbed_of_several_parts_is_reported(synthetic: Make) -> None:
    parts = [{"event": "contended", "value": cores, "sentence": f"{cores} cores"} for cores in (0.2, 1.4, 0.3)]
    verdict = analyse(synthetic(clock="TAI", log=(*parts, {"event": "finished"})).write())
    assert [one["sentence"] for one in verdict.findings] == ["1.4 cores"]


@pytest.mark.parametrize(("cores", "name"), [(0.9, "contended"), (1.0, "contended_heavily")])
def test_work_that_takes_half_of_the_machine_makes_the_run_doubtful(synthetic: Make, cores: float, name: str) -> None:
    log = ({"event": "contended", "value": cores, "sentence": f"{cores} cores"}, {"event": "finished"})
    verdict = analyse(path := synthetic(clock="TAI", bed=machine(0.4, 0), log=log).write())
    assert names(path) == {name}
    assert verdict.verdict == ("doubtful" if name == "contended_heavily" else "trusted")


@pytest.mark.parametrize(
    ("kind", "state", "found"), [("veth", "on", True), ("veth", "off", False), ("bridge", "on", False)]
)
def test_offloads_are_read_from_the_links_of_the_bed(synthetic: Make, kind: str, state: str, found: bool) -> None:
    links = {"a-direct": {"kind": kind, "offloads": {"generic-receive-offload": state}}}
    path = synthetic(clock="TAI", bed={"stable": {"hosts": {"a": {"links": links}}}}).write()
    analyse(path)
    assert names(path) == ({"offload_on"} if found else set())


# Departures.


def test_departures_are_evaluated_from_the_capture(captured: Make) -> None:
    """A sender that jitters by 3 us and one that is 5 % slow; sequence numbers wrap, and some frames are lost."""
    rng = np.random.default_rng(11)
    sent = np.arange(65_000, 66_000)
    kept = np.sort(rng.choice(1000, 990, replace=False))
    good = 10**18 + np.arange(1000) * 1_000_000 + rng.normal(0, 3000, 1000).astype(int)
    slow = 10**18 + np.arange(1000) * 1_050_000
    flood = 10**18 + np.arange(5000) * 20_000
    path = captured(
        ("probe", 1_000_000, good[kept], sent[kept]),
        ("ping", 1_000_000, slow, np.arange(1000)),
        ("ping", 0, flood, np.arange(5000)),
    ).write()
    verdict = analyse(path)
    assert the(path, probe="probe", quantity="pacing_within_10us")["estimate"] > 0.99
    assert the(path, probe="probe", quantity="pacing_error", statistic="p50")["estimate"] == pytest.approx(2023, 0.1)
    assert the(path, probe="probe", quantity="pacing_within_1us")["estimate"] == pytest.approx(0.26, abs=0.05)
    assert the(path, probe="ping", interval_ns=10**6, quantity="pacing_within_10us")["estimate"] < 0.01
    mean = the(path, probe="ping", interval_ns=10**6, quantity="departure_interval", statistic="mean")
    assert mean["estimate"] == pytest.approx(1_050_000)
    assert the(path, probe="ping", interval_ns=0, quantity="departure_rate")["estimate"] == pytest.approx(50_000)
    assert verdict.findings == []
    assert "ping 0" in verdict.sentence
    assert pl.read_parquet(RunFolder(path).samples / "pacing_errors.parquet")["device"].unique().len() == 2


def test_trial_without_records_counts_as_missing(captured: Make) -> None:
    """Its group has no other trial that would tell of it."""
    made = captured(("probe", 10**6, 10**18 + np.arange(1000) * 10**6, np.arange(1000)))
    path = made.write()
    unseen = {"event": "trial", "block": 9, "tool": "ping", "interval_ns": 10**7, "icmp_bytes": 64, "count": 100}
    log = RunFolder(path).log
    log.write_text(json.dumps(unseen | {"icmp_id": 7}) + "\n" + log.read_text())
    verdict = analyse(path)
    assert [(one["name"], one["value"]) for one in verdict.findings] == [("incomplete", 1)]


def test_reported_clock_step_is_the_detected_one(synthetic: Make) -> None:
    """A clock slewed by 100 ppm over an hour's pause has moved by 360 ms, which is no step; 50 ms at once is one."""

    def paused_and_stepped(block: Any, probes: Any, rng: Any) -> None:
        del probes, rng
        number = block["block"]
        raw = (3_600_000_000_000 if number >= 50 else 0) - 1_000_000_000
        apart = (360_000_000 if number >= 50 else 0) + (50_000_000 if number >= 80 else 0)
        for name in ("started", "ended"):
            block[f"{name}_raw_ns"] = block[f"{name}_ns"] + raw - 500
            block[f"{name}_ns"] += raw + apart

    verdict = analyse(synthetic(alter=paused_and_stepped).write())
    (step,) = [one for one in verdict.findings if one["name"] == "clock_stepped"]
    assert step["value"] == pytest.approx(50e6, rel=0.01)


# Hypotheses.


def steps_at_512(block: Any, probes: Any, rng: Any) -> None:
    del rng
    if block["device"] == "bridge" and block["request_frame_bytes"] > 512:
        probes["arrival_ns"] = probes["arrival_ns"] + 2000


def slower_when_idle(block: Any, probes: Any, rng: Any) -> None:
    del rng
    if block["device"] == "bridge" and block["interval_ns"] > 5_000_000:
        probes["arrival_ns"] = probes["arrival_ns"] + 2000


HYPOTHESES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "constant-plus-per-byte": ({"icmp_bytes": (64, 256, 512, 1024, 1480)}, {"alter": steps_at_512}),
    "rate-independent": ({"icmp_bytes": (64,), "intervals_ns": (10**6, 2 * 10**6, 10**7)}, {"alter": slower_when_idle}),
    "cascade-adds": (
        {"latency_ns": {"bridge": 1300.0, "bridge*2": 2600.0}, "per_byte_ns": {"bridge": 0.4, "bridge*2": 0.8}},
        {"latency_ns": {"bridge": 1300.0, "bridge*2": 3400.0}, "per_byte_ns": {"bridge": 0.4, "bridge*2": 0.8}},
    ),
}


@pytest.mark.parametrize("hypothesis", HYPOTHESES)
def test_true_hypothesis_is_supported_and_false_one_rejected(synthetic: Make, hypothesis: str) -> None:
    true, broken = HYPOTHESES[hypothesis]
    kept = analyse(synthetic(rounds=24, hypotheses=(hypothesis,), **true).write()).hypotheses
    failed = analyse(synthetic(rounds=24, hypotheses=(hypothesis,), **{**true, **broken}).write()).hypotheses
    assert [one["outcome"] for one in kept] == ["supported"]
    assert [one["outcome"] for one in failed] == ["rejected"]
    assert kept[0]["ci_low"] <= kept[0]["estimate"] <= kept[0]["ci_high"]
    assert failed[0]["ci_low"] > failed[0]["margin"] or failed[0]["ci_high"] < -failed[0]["margin"]


@pytest.mark.parametrize("hypothesis", HYPOTHESES)
def test_hypothesis_is_inconclusive_with_too_few_data(synthetic: Make, hypothesis: str) -> None:
    true, _ = HYPOTHESES[hypothesis]
    answers = analyse(synthetic(rounds=5, hypotheses=(hypothesis,), **true).write()).hypotheses
    assert [one["outcome"] for one in answers] == ["inconclusive"]
    noisy = {**true, "noise": lambda rng, n: 40_000 * rng.standard_t(2, n)}
    answers = analyse(synthetic(rounds=12, hypotheses=(hypothesis,), **noisy).write()).hypotheses
    assert [one["outcome"] for one in answers] == ["inconclusive"]


def test_unknown_hypothesis_has_no_outcome(synthetic: Make) -> None:
    answers = analyse(synthetic(rounds=6, hypotheses=("murphy",)).write()).hypotheses
    assert [(one["hypothesis"], one["outcome"]) for one in answers] == [("murphy", "inconclusive")]


def test_a_hypothesis_is_not_rejected_by_a_deviation_that_may_lie_within_the_margin() -> None:
    """The estimate is beyond the margin of 1 and significantly different from zero, but the truth may be 0.5."""
    near = Deviations([Interval(1.5, 0.5, 2.5, 0.95, 20)], None)
    assert judge_hypothesis("hypothesis", near, Margin(1.0, "1 ns"), "a line", "bridge").outcome == "inconclusive"


def test_a_rejected_hypothesis_names_the_deviation_that_rejects_it() -> None:
    """The largest of all is not known at all; a smaller one is known to be too large."""
    found = Deviations([Interval(9.0, -50.0, 70.0, 0.98, 20), Interval(-3.0, -4.0, -2.0, 0.98, 20)], None)
    answer = judge_hypothesis("hypothesis", found, Margin(1.0, "1 ns"), "a line", "bridge")
    assert answer.outcome == "rejected"
    assert answer.tidy()["estimate"] == -3.0


# The sentence.


@pytest.mark.parametrize(
    ("latency", "per_byte", "says"),
    [
        (
            1300.0,
            0.4,
            r"^Simulated.*The Linux bridge adds 1\.34\d* µs one way \(icmp, 64 B .* ns for each byte more .*; the bed",
        ),
        (
            1300.0,
            0.0,
            r"adds 1\.[23]\d* µs one way \(icmp.*\) over the direct link \(95 % CI [\d.–]+ within one bed\); the bed",
        ),
        (2300.0, -0.4, r"adds 2\.26\d* µs one way .*; it is 1\.69\d* to 2\.26.*; −0\.4\d* ns for each byte more"),
        (
            0.0,
            0.0,
            r"^Simulated.*No delay of the Linux bridge was found one way .* over the direct link: .*, an interval",
        ),
        (-900.0, 0.0, r"adds −0\.[89]\d* µs one way .*; not to be used: below floor"),
    ],
)
def test_verdict_sentence_states_the_result(synthetic: Make, latency: float, per_byte: float, says: str) -> None:
    path = synthetic(rounds=24, latency_ns={"bridge": latency}, per_byte_ns={"bridge": per_byte}).write()
    sentence = analyse(path).sentence
    assert re.search(says, sentence), sentence
    assert "+ −" not in sentence


def test_each_figure_of_the_sentence_names_its_reference(synthetic: Make) -> None:
    latency = {"wire": 1000.0, "bridge": 1300.0, "emulate": 9500.0}
    sentence = analyse(synthetic(latency_ns=latency, per_byte_ns={}).write()).sentence
    first = r"^Simulated, .*: The emulator adds 8\.5.* over the wire .*; over the direct link, 9\.[45]"
    second = r"the Linux bridge adds 0\.3"
    figures = f"{first}.*; over the wire, {second}"
    assert re.search(figures, sentence), sentence


def test_findings_have_their_current_labels() -> None:
    assert label("local_drops") == "local drops"
    assert label("below_floor") == "below floor"


def test_no_claim_is_made_below_the_resolution_of_the_bed(synthetic: Make) -> None:
    """A control that is spread by 0.4 us hides 60 ns and 0.05 ns per byte, however narrow their intervals."""

    def spread(block: Any, probes: Any, rng: Any) -> None:
        if block["device"] == "a/a":
            probes["arrival_ns"] = probes["arrival_ns"] + int(rng.normal(0, 6000))

    made = {"rounds": 24, "latency_ns": {"bridge": 60.0}, "alter": spread}
    sentence = analyse(synthetic(per_byte_ns={"bridge": 0.05}, **made).write()).sentence
    assert "adds less than the bed can resolve" in sentence, sentence


def test_configured_reference_is_used_in_headline_budget_and_other_devices(synthetic: Make) -> None:
    added = {"bridge": 1300.0, "bridge:capture": 1900.0, "bridge:tcpdump": 2400.0}
    path = synthetic(latency_ns=added, per_byte_ns={}, icmp_bytes=(64,), plan_extra='reference = "bridge"').write()
    analyse(path)
    verdict = json.loads(RunFolder(path).verdict.read_text())
    assert re.search(r"Our capture adds 0\.\d+ µs one way to the Linux bridge \(95 % CI", verdict["sentence"])
    assert re.search(r"; tcpdump adds 1\.\d+ µs \(", verdict["sentence"])
    assert re.search(r"; over the direct link, the Linux bridge with a capture adds 1\.\d+ µs", verdict["sentence"])
    assert (verdict["pairs"]["device"], verdict["pairs"]["reference"]) == ("bridge:capture", "bridge")
    for device, latency in added.items():
        if device != "bridge":
            row = the(path, device=device, reference="bridge", quantity="device_latency", statistic="mean")
            assert row["ci_low"] <= latency - 1300 <= row["ci_high"]
    (budget,) = json.loads(RunFolder(path).budgets.read_text())
    assert budget["name"] == "Latency of bridge:capture over bridge"
    told = {one["name"]: one["source"] for one in budget["components"]}
    assert told["definition of the measurand"].endswith("by definition, on a path of as many links")
