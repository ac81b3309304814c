"""Method "taps" on real frames: what the taps of each trial saw is what its stream sent, and all is gone afterwards."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from sojourn.analysis.run import load
from sojourn.conduct import Screen, conduct, create_folder
from sojourn.conduct.asking import STREAM_UDP_PORT
from sojourn.devices import bridge_netfilter
from sojourn.methods.taps.analyse import study
from sojourn.plan import load_plan
from sojourn.records import RunFolder, read_table
from sojourn.records.log import read_log
from tests.children import Child
from tests.net.busy_machine import await_that, retried, undisturbed
from tests.net.tcplog_bed import argv_of, environment, sojourn_says

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces by name")

SETS = (
    "bed.sessions=1", "trials.rounds=2", "trials.duration=40ms", "stream.interval=400us", "stream.payload_bytes=64",
    "trials.qualify=false",
)  # fmt: skip
KEYS = {"wire": "bridge", "bridge:qos": "bridge", "router": "router", "router:nat": "nat"}


@pytest.mark.parametrize("devices", ["wire,bridge:qos", "router,router:nat"])
@retried
def test_taps_see_every_packet_of_every_trial_on_its_way_through_the_device(devices: str, tmp_path: Path) -> None:
    plan = load_plan("bridge-modes", quick=True, sets=[*SETS, f"bed.devices={devices}"])
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    run = load(folder.path)
    taps = [event for event in read_log(folder.log) if event["event"] == "taps"]
    trials = {event["block"]: event for event in run.trial_events.values() if event["device"] not in ("direct", "a/a")}
    assert {event["block"] for event in taps} >= trials.keys()
    for event in taps:
        assert event["key"] == KEYS[event["device"]]
        expect_whole(event, trials.get(event["block"]), folder.records / event["records"])
    found = study(run)
    least = {row.device: row.value.estimate for row in found.rows
             if (row.quantity, row.statistic) == ("delay_between_taps", "min")}  # fmt: skip
    assert least.keys() == set(devices.split(","))
    assert all(200 < ns < 1e6 for ns in least.values()), least
    assert not list(tmp_path.rglob("*.pcapng"))


def expect_whole(event: dict[str, Any], trial: dict[str, Any] | None, matched: Path) -> None:
    """Forward: everything that was sent entered, and is matched or lost; nothing else came out."""
    [pair] = event["matched"]["pairs"]
    assert pair["clocks"]["relation"] == "one"
    counts = next(one["counts"] for one in pair["directions"] if one["direction"] == "forward")
    assert counts["seen_first"] == counts["matched"] + counts["lost"] + counts["pending"] + counts["evicted"], counts
    assert counts["seen_second"] == counts["matched"] + counts["duplicated"] + counts["unexpected"], counts
    assert counts["unexpected"] == 0, json.dumps(event["matched"])
    with undisturbed():  # an end that nobody answers in time is said again, in the same words
        assert counts["ambiguous"] == 0, json.dumps(event["matched"])
    if trial is None:  # tried again
        return
    length = trial["factors"]["frame_bytes"] - 4
    crossings = read_table(matched, "crossings").frame
    mine = crossings.filter(pl.col("direction") == "forward", pl.col("length_bytes") == length)
    assert mine.height == sum(flow["first"] for flow in trial["received"] if flow["port"] == 0)
    assert (mine["delay_ns"] > 0).all()


def test_frames_of_every_trial_pass_the_netfilter_rules(tmp_path: Path) -> None:
    """Its rule of marks counted each of them, and the kernel tracks their connection: else its cost is not measured."""
    plan = load_plan("bridge-modes", quick=True, sets=[*SETS, "bed.devices=bridge:netfilter"])
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    events = load(folder.path).trial_events.values()
    through = [event for event in events if event["device"] == "bridge:netfilter"]
    frames = sum(flow["first"] for event in through for flow in event["received"] if flow["port"] == 0)
    shown = json.loads(folder.bed.read_text())["objects"]["bridge:netfilter"]["shown"]
    rules, connections = shown["nft list ruleset"], shown[bridge_netfilter.CONNECTIONS]
    counted = re.search(r"counter packets (\d+) bytes (\d+) meta mark set ct mark", rules)
    assert counted, rules
    assert int(counted[1]) >= frames >= 4 * 90
    datagram = 64 + 28
    assert int(counted[2]) >= frames * datagram
    assert re.search(rf"ipv4 .* udp .* dst=10\.77\.\S+ .*dport={STREAM_UDP_PORT} ", connections), connections


def test_run_killed_in_a_trial_can_be_resumed(tmp_path: Path) -> None:
    """What the taps of the trial that was cut short had written must not be in the way."""
    sets = [word for one in (*SETS, "bed.devices=wire", "trials.rounds=6") for word in ("--set", one)]
    out = tmp_path / "run"
    own = ["--no-history", "--no-report"]
    command = argv_of("run", "bridge-modes", "--quick", *sets, "--out", out, *own)
    with Child(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        await_that(lambda: len(list(out.glob("records/taps/*/matched"))) >= 3, "three trials are measured")
        count = len(list(out.glob("records/taps/*")))
        await_that(lambda: len(list(out.glob("records/taps/*"))) > count, "another one began")
        run.kill()
    done = sojourn_says("run", "--resume", out, *own)
    assert done.returncode in {0, 4}, done.stderr
    folder = RunFolder(out)
    log = read_log(folder.log)
    assert log[-1]["event"] == "finished"
    tapped = {event["block"] for event in log if event["event"] == "taps"}
    trials = {event["block"] for event in load(out).trial_events.values() if event["device"] == "wire"}
    assert trials <= tapped
    assert {event["records"].split("-")[0] for event in log if event["event"] == "taps"} == {"taps/000", "taps/001"}


SHAPED = """#!/bin/sh
set -eu
ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
for port in "$SOJOURN_LEFT" "$SOJOURN_RIGHT"; do ip link set "$port" master br0; done
ip link set br0 up
tc qdisc add dev "$SOJOURN_RIGHT" root tbf rate 3mbit burst 4000 limit 1000000
"""


@pytest.mark.proof
@retried
def test_outlying_cell_is_repeated_and_reported_as_persistent(tmp_path: Path) -> None:
    """A bridge that lets out 3 Mbit/s: at the highest of three rates frames wait, and at no other."""
    box = tmp_path / "shaped.sh"
    box.write_text(SHAPED)
    box.chmod(0o755)
    own = [
        "bed.sessions=3", "trials.rounds=6", "trials.duration=40ms", "trials.grace=50ms", "trials.qualify=false",
        "trials.a_a=false", "trials.at_most=10min", "stream.payload_bytes=64", "stream.interval=1ms,500us,150us",
    ]  # fmt: skip
    plan = load_plan("bridge-modes", quick=True, sets=own, devices=["bridge", str(box)])
    folder = create_folder(plan, tmp_path / "run")
    conduct(plan, folder, Screen(io.StringIO()))
    found = study(load(folder.path))
    told = [event for event in read_log(folder.log) if event["event"] == "repeated"]
    shaped = [event for event in told if event["device"].startswith("box:")]
    with undisturbed():  # a receiver that was held up in another cell
        assert [event["cell"] for event in shaped] == [2, 2, 2]
    assert all(len(event["of_device"]) == len(event["of_reference"]) == 4 for event in shaped)
    (finding,) = [one for one in found.findings if one.name == "anomalous_cell"]
    assert finding.places[0].device == shaped[0]["device"]
    assert "repeated by itself on 3 of 3 beds, it persists" in finding.sentence
