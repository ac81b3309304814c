"""Built-in studies between real hosts with clocks of their own: the emulator among the devices, searches, TCP."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sojourn.plan import load_plan
from sojourn.plan.load import studies
from sojourn.records import read_table
from tests.cabled import cabled, cabled_for, cabled_to_dut, ports_at
from tests.net.busy_machine import idle_ends, retried, undisturbed
from tests.net.real_hosts import SSHD, Hosts
from tests.net.test_real_hosts import await_nothing

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]


JOIN = """
ip link add name switch type bridge stp_state 0 mcast_snooping 0
for dev in "$@" switch; do ip link set dev "$dev" addrgenmode none; ip link set dev "$dev" up; done
for dev; do ip link set dev "$dev" master switch; done
"""
"""A bridge over all ports of a host, which Sojourn does not build and is not told of."""


def run_over_ssh(folder: Path, study: str, *more: str, own_boots: bool = True, over_dut: bool = False) -> Path:
    """The run folder of a study on a bench for its devices; nothing is left on any host.

    `over_dut`: on one for `dut:box`, which is a bridge on a host that is not in the file.
    """
    cables, paths = (cabled_to_dut if over_dut else cabled_for)(load_plan(study).bed)
    with Hosts(folder / "lab", cables=cables, own_boots=own_boots) as hosts:
        bed = hosts.bed(paths, names=("a", "b") if over_dut else None)
        if over_dut:
            hosts.at("device", "sh", "-ec", JOIN, "sh", *ports_at(cables, "device"))
        argv = ["run", study, "--quick", "--bed", str(bed), "--out", "run", "--no-history", "--no-report"]
        done = hosts.sojourn(*argv, *more, seconds=900)
        assert done.returncode in (0, 4), done.stderr
        await_nothing(hosts, 5)
    run = folder / "lab/run"
    assert json.loads((run / "analysis/verdict.json").read_text())["sentence"]
    return run


def events(run: Path, name: str) -> list[dict[str, Any]]:
    """The events of a name in a run's log."""
    told = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [one for one in told if one["event"] == name]


def rows(run: Path, quantity: str, statistic: str) -> list[dict[str, Any]]:
    """The rows of results of a quantity."""
    found = json.loads((run / "analysis/results.json").read_text())
    return [row for row in found if (row["quantity"], row["statistic"]) == (quantity, statistic)]


SHORT = ("bed.sessions=2", "stream.pipe=delay 2ms,delay 5ms", "trials.rounds=2", "trials.duration=60ms")


def test_emulator_on_another_host_is_configured_logged_and_replayed(tmp_path: Path) -> None:
    sets = [word for one in SHORT for word in ("--set", one)]
    run = run_over_ssh(tmp_path, "emulator-delay", *sets, *idle_ends())
    assert {tuple(one["engine"]) and one["role"] for one in events(run, "emulator-ready")} == {"device"}
    assert {one["words"] for one in events(run, "emulator-set")} == {"delay 2ms", "delay 5ms"}
    replayed = events(run, "emulator-replay")
    assert replayed
    assert all(one["identical"] for one in replayed)
    assert read_table(run / "records", "packets").frame.height > 100
    streams = read_table(run / "records", "streams").frame
    lines = read_table(run / "records", "clock_lines").frame.join(streams, on="block").filter(purpose="measure")
    assert set(lines["device"]) == {"direct"}, "through a pipe nobody asks for a time"
    delays = rows(run, "emulated_delay", "mean")
    assert len(delays) == 2
    for row, planned in zip(delays, (2e6, 5e6), strict=True):
        assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"] < 20e6
        assert abs(row["estimate"] - planned) < 2e6, row


def test_delays_in_searches_use_frame_timestamps_and_aligned_clocks(tmp_path: Path) -> None:
    asked = ("bed.sessions=1", "search.tests=throughput,latency", "search.repetitions=1", "search.max_rate=10kpps",
             "search.at_most=20s", "search.width=0.5", "search.goals=0.5")  # fmt: skip
    run = run_over_ssh(tmp_path, "rfc2544", *(word for one in asked for word in ("--set", one)), *idle_ends())
    streams = read_table(run / "records", "streams").frame
    asked_time = set(read_table(run / "records", "clock_lines").frame["block"])
    timed = {one["block"] for one in events(run, "search-step") if one["test"] == "latency"}
    assert timed
    assert timed <= asked_time & set(streams.filter(purpose="search")["block"])
    assert timed <= set(read_table(run / "records", "arrivals").frame["block"])
    [delay] = rows(run, "latency_typical", "median")
    assert 0 < delay["clock_error95_ns"] <= delay["clock_bound_ns"] < 4e6
    assert -delay["clock_bound_ns"] < delay["estimate"] < 20e6
    findings = json.loads((run / "analysis/verdict.json").read_text())["findings"]
    assert "clock_unsynchronised" not in {one["name"] for one in findings}


STAGES = ("bed.sessions=1", "devices=bridge", "trials.rounds=2", "trials.duration=100ms", "stream.frame_bytes=128")


def test_only_stages_between_hosts_include_the_clock_error(tmp_path: Path) -> None:
    run = run_over_ssh(tmp_path, "stages", *(word for one in STAGES for word in ("--set", one)), *idle_ends())
    found = json.loads((run / "analysis/results.json").read_text())
    stages = {
        row["quantity"]: row
        for row in found
        if row["quantity"].startswith("stage_") and (row["device"], row["reference"]) == ("direct", None)
        and row["statistic"] == "mean"
    }  # fmt: skip
    crossing = {name for name, row in stages.items() if row["clock_bound_ns"]}
    assert {"stage_path", "stage_total"} & crossing, stages.keys()
    assert all(0 < stages[name]["clock_error95_ns"] <= stages[name]["clock_bound_ns"] < 4e6 for name in crossing)
    assert {"stage_pacing", "stage_receive"} <= stages.keys() - crossing, stages.keys()
    assert -stages["stage_path"]["clock_bound_ns"] < stages["stage_path"]["estimate"] < 20e6
    assert stages["stage_receive"]["estimate"] >= 0


CLOCKS = (True, pytest.param(False, marks=pytest.mark.proof))
"""Whether each host has its own; with one, it goes as between namespaces."""

LOADS = ("bed.sessions=2", "load.rounds=4", "load.idle=500ms", "load.start_up=800ms", "load.duration=1500ms",
         "emulate.words=rate 20Mbit/s delay 10ms queue 80", "load.direction=both")  # fmt: skip
RATE_BPS = 20e6


@pytest.mark.parametrize("own_boots", CLOCKS)
def test_tcp_flows_load_a_path_with_shared_and_separate_clocks(own_boots: bool, tmp_path: Path) -> None:
    sets = [word for one in LOADS for word in ("--set", one)]
    run = run_over_ssh(tmp_path, "bufferbloat", *sets, "--set", "load.background=udp 1Mbit/s", own_boots=own_boots)
    told = events(run, "clock-trial")
    assert len(told) == (2 * (1 + 2) if own_boots else 0), "before the first round of each bed, and behind each"
    lines = read_table(run / "records", "clock_lines").frame.filter(~pl.col("shared"))
    assert set(lines["block"]) == {one["block"] for one in told}
    for way in ("down", "up"):
        [goodput] = rows(run, "goodput", way)
        [beside] = rows(run, "background_goodput", f"{way} udp 1Mbit/s")
        assert 0.7 * RATE_BPS < goodput["estimate"] + beside["estimate"] < RATE_BPS
        assert beside["estimate"] == pytest.approx(1e6, rel=0.1)
        [delay] = rows(run, "background_delay", f"{way} udp 1Mbit/s mean")
        assert 10e6 < delay["estimate"] < 80e6, "the pipe's delay, and what its queue can hold"
        assert (0 < (delay["clock_error95_ns"] or 0) <= delay["clock_bound_ns"] < 20e6) if own_boots else (
            delay["clock_bound_ns"] is None
        )  # fmt: skip
    increases = rows(run, "rtt_increase", "mean")
    assert len(increases) == 1
    assert all(1e6 < row["estimate"] < 120e6 for row in increases)
    found = {one["name"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}
    assert not found & {"clock_unsynchronised", "clock_imprecise", "not_conserved", "impossible"}
    assert bool(rows(run, "standing_queue", "down")) is not own_boots


TRANSFERS = ("bed.sessions=2", "short.rounds=4", "short.transfers=10", "short.size_bytes=10000,100000",
             "emulate.words=rate 20Mbit/s delay 10ms queue 80")  # fmt: skip


@pytest.mark.parametrize("own_boots", CLOCKS)
def test_completion_times_of_short_transfers_are_measured_with_two_clocks(
    own_boots: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.conduct.clock_trials.APART_SECONDS", 0.2)  # within a round, too
    run = run_over_ssh(tmp_path, "short-flows", *(word for one in TRANSFERS for word in ("--set", one)),
                       own_boots=own_boots)  # fmt: skip
    told = events(run, "clock-trial")
    assert len(told) == (2 * (1 + 2 * 2) if own_boots else 0), "before each of both trials of a round, and behind it"
    times = {row["payload_bytes"]: row for row in rows(run, "completion_time", "mean")}
    # The first window holds 10 packets of 1,448 bytes: all of it leaves at once. The larger takes two round trips more.
    assert 14e6 < times[10_000]["estimate"] < 30e6
    assert 60e6 < times[100_000]["estimate"] < 140e6
    for row in times.values():
        if own_boots:
            assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"] < 5e6
        else:
            assert row["clock_bound_ns"] is None


PHASES = ("bed.sessions=2", "trials.rounds=4", "trials.duration=517ms", "trials.qualify=false", "trials.at_most=1h")
FRAME_NS = 1538 * 8e9 / 10e6


@retried
@pytest.mark.parametrize("own_boots", CLOCKS)
def test_the_phase_of_two_streams_over_a_rated_link_has_lines_of_clock_trials(own_boots: bool, tmp_path: Path) -> None:
    sets = [word for one in PHASES for word in ("--set", one)]
    run = run_over_ssh(tmp_path, "rated-phase", *sets, *idle_ends(), own_boots=own_boots)
    told = events(run, "clock-trial")
    assert len(told) == (2 * (1 + 2) if own_boots else 0), "before the first round of each bed, and behind each"
    blocks = [one["block"] for one in (*told, *events(run, "stream-trial"))]
    assert len(blocks) == len(set(blocks)), "a repeated trial has no clock trial's number"
    lines = read_table(run / "records", "clock_lines").frame.filter(~pl.col("shared"))
    assert set(lines["block"]) == {one["block"] for one in told}, "through a rated link nobody asks for a time"
    with undisturbed():  # a round counts where each bin of the phase has a frame
        heights, effects = rows(run, "phase_height", "fit"), rows(run, "phase_effect", "behind")
        assert len(heights) == len(effects) == 1
        [height], [behind] = heights, effects
        assert height["estimate"] == pytest.approx(FRAME_NS, rel=0.1)
        assert 0.8 * FRAME_NS < behind["estimate"] < 1.1 * FRAME_NS
    delays = [row for row in rows(run, "one_way_delay", "mean") if row["device"] == "bridge"]
    assert len(delays) == 1
    for row in (height, behind, *delays):
        if own_boots:
            assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"] < 100e6
            with undisturbed():
                assert row["clock_error95_ns"] < 0.05 * FRAME_NS
        else:
            assert row["clock_bound_ns"] in {None, 0.0}
    found = {one["name"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}
    assert not found & {"clock_unsynchronised", "clock_stepped", "clock_one_sided"}


MESSAGES = ("bed.sessions=1", "bed.devices=wire,bridge", "trials.rounds=2", "trials.duration=40ms",
            "trials.qualify=false", "stream.rate=1kpps at 64,1kpps at 1460")  # fmt: skip


@pytest.mark.parametrize("own_boots", CLOCKS)
def test_messages_over_tcp_have_delays_by_the_devices_clock_alone(own_boots: bool, tmp_path: Path) -> None:
    sets = [word for one in MESSAGES for word in ("--set", one)]
    run = run_over_ssh(tmp_path, "bridge-modes-tcp", *sets, *idle_ends(), own_boots=own_boots)
    [conditions] = events(run, "tcp-conditions")
    assert {host: own["tcp_timestamps"] for host, own in conditions["sysctls"].items()} == {"a": ["0"], "b": ["0"]}
    alone = rows(run, "one_segment_messages", "ratio")
    assert {(row["device"], row["payload_bytes"]) for row in alone} == {
        (device, size) for device in ("wire", "bridge") for size in (64, 1460)
    }
    assert all(row["estimate"] == 1 for row in alone)
    between = rows(run, "delay_between_taps", "p50")
    assert len(between) == 4
    assert all(100 < row["estimate"] < 1e6 for row in between)
    assert bool(rows(run, "tap_pacing_error", "mean")) is not own_boots, "the tap's clock less the sender's"
    found = {one["name"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}
    assert "clock_unsynchronised" not in found
    assert not events(run, "clock-trial"), "no figure is of two clocks"


SENDERS = ("bed.sessions=2", "probe.interval=100ms,2ms", "probe.icmp_bytes=64", "departures.at_most=1s",
           "pairs.rounds=4")  # fmt: skip


@retried
@pytest.mark.parametrize("own_boots", CLOCKS)
def test_senders_are_judged_by_a_capture_at_a_host_with_a_clock_of_its_own(own_boots: bool, tmp_path: Path) -> None:
    run = run_over_ssh(tmp_path, "ping-wait", *(word for one in SENDERS for word in ("--set", one)), *idle_ends(),
                       own_boots=own_boots)  # fmt: skip
    trials = events(run, "trial")
    assert len(trials) == 2 * 2 * 4
    told = [json.loads(line)["event"] for line in (run / "log.jsonl").read_text().splitlines()]
    order = [*(one for one in told if one in {"started", "clock-trial", "trial"}), "ended"]
    assert order.count("started") == 2
    beside = {(order[place - 1], order[place + 1]) for place, one in enumerate(order) if one == "trial"}
    assert (beside == {("clock-trial", "clock-trial")}) is own_boots, order
    assert ("clock-trial" in order) is own_boots
    seen = read_table(run / "records", "captures").frame
    assert {block: frames.height for (block,), frames in seen.partition_by("block", as_dict=True).items()} == {
        one["block"]: one["count"] for one in trials
    }
    found = rows(run, "departure_interval", "mean")
    assert {(row["probe"], row["interval_ns"]) for row in found} == {
        (tool, pace) for tool in ("ping", "probe") for pace in (2_000_000, 100_000_000)
    }
    span = (pl.col("arrival_ns").max() - pl.col("arrival_ns").min()) / (pl.len() - 1)
    gaps = dict(seen.group_by("block").agg(span.alias("gap")).iter_rows())
    for row in found:
        of = (row["probe"], row["interval_ns"])
        own = [gaps[one["block"]] for one in trials if (one["tool"], one["interval_ns"]) == of]
        assert row["estimate"] == pytest.approx(sum(own) / len(own), rel=1e-3), "both clocks are one in truth"
        if row["probe"] == "probe":  # ping rounds its waits up to ticks of the kernel: 104 ms for 100
            with undisturbed():
                assert row["estimate"] == pytest.approx(row["interval_ns"], rel=0.02)
        if own_boots:
            assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"] < 5e6
            with undisturbed():
                assert row["clock_error95_ns"] < 1e-4 * row["interval_ns"], "of the clocks' rate alone"
        else:
            assert row["clock_bound_ns"] is None
    findings = {one["name"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}
    assert not findings & {"clock_unsynchronised", "clock_one_sided", "clock_stepped", "incomplete"}


SLOPES = ("bed.sessions=2", "pairs.rounds=4", "pairs.probes_per_block=12", "probe.payload_bytes=46,1500")


@retried
def test_a_direct_link_with_a_rate_is_an_emulator_on_the_host_of_devices(tmp_path: Path) -> None:
    """At 100 Mbit/s each byte takes 80 ns, over two such links twice as long; a busy machine only adds to that."""
    sets = [word for one in SLOPES for word in ("--set", one)]
    run = run_over_ssh(tmp_path, "rated-frame-size", *sets, "--device", "bridge", *idle_ends())
    blocks = read_table(run / "records", "blocks").frame.select("block", "part", "device", "cell")
    probes = read_table(run / "records", "probes").frame.join(blocks, on=["block", "part"])
    took = pl.col("arrival_ns") - pl.coalesce("departure_ns", "send_call_ns")
    found = probes.group_by("device", "cell").agg((took.min() / 2).alias("half"))
    least = {(device, cell): half for device, cell, half in found.select("device", "cell", "half").iter_rows()}
    for device, links in (("direct", 1), ("bridge", 2)):
        short, long = (least[device, cell] for cell in (0, 1))
        assert short > links * (200_000 + 84 * 80)
        with undisturbed():
            assert (long - short) / (1500 - 46) == pytest.approx(80 * links, rel=0.15), least


def test_a_check_of_the_bed_probes_a_direct_link_through_the_host_of_devices(tmp_path: Path) -> None:
    cables, paths = cabled(["bridge"], is_direct_rated=True)
    with Hosts(tmp_path / "lab", cables=cables) as hosts:
        done = hosts.sojourn("bed", "check", str(hosts.bed(paths)), "--json")
        checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
        refused = hosts.sojourn("run", "bridge-latency", "--bed", str(hosts.bed(paths)), "--dry-run")
        await_nothing(hosts, 5)
    assert (done.returncode, checks["path direct"]["status"]) == (0, "ok"), done.stdout
    assert checks["path direct"]["found"].endswith(
        "through eth1 and eth2 of host device: for studies that give the direct link a rate or delay (bed.links) alone"
    )
    assert (refused.returncode, "path direct goes through the host of devices" in refused.stderr) == (2, True)


@pytest.mark.proof
@pytest.mark.parametrize("study", [name for name, _ in studies()])
def test_every_study_runs_between_real_hosts(study: str, tmp_path: Path) -> None:
    """As `--quick` has it, but on one bed, and for the rounds that half a minute has no room for.

    A trial that compares clocks takes over a second there: five beds of two rounds were a quarter of an hour.
    """
    limit = load_plan(study, quick=True).ask.limit
    sets = ["bed.sessions=1", f"{limit.section}.at_most=30s"] if limit else []
    run = run_over_ssh(tmp_path, study, *(word for one in sets for word in ("--set", one)))
    found = {one["name"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}
    assert not found & {"clock_unsynchronised", "blocks_lost"}, found
    assert any(row["estimate"] is not None for row in json.loads((run / "analysis/results.json").read_text()))
