"""Several ports at an end of a path between real hosts: what each of them sent and got, frame by frame."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sojourn.records import read_table
from tests.cabled import cabled
from tests.net.busy_machine import idle_ends
from tests.net.real_hosts import SSHD, Hosts
from tests.net.test_real_hosts import await_nothing
from tests.net.test_real_hosts_studies import events, rows, run_over_ssh
from tests.unit.printed_json import printed

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]
TRIALS = ("bed.sessions=1", "devices=bridge", "trials.rounds=2", "trials.duration=100ms", "trials.grace=50ms")


def measured(folder: Path, study: str, *sets: str) -> Path:
    """The run of a study over a bridge alone, shortened."""
    return run_over_ssh(folder, study, *(word for one in (*TRIALS, *sets) for word in ("--set", one)), *idle_ends())


def trials(run: Path, **asked: object) -> list[dict[str, Any]]:
    """The trials over the bridge that count, of these factors."""
    return [
        one
        for one in events(run, "stream-trial")
        if (one["purpose"], one["device"], one["kept"]) == ("measure", "bridge", True)
        and all(one["factors"][name] == value for name, value in asked.items())
    ]


def counted(trial: dict[str, Any], way: str, end: str, ports: int) -> list[int]:
    """Frames that each port of an end counted."""
    names = [f"{end}-bridge", *(f"{end}-bridge-{j}" for j in range(2, ports + 1))]
    return [trial["counters"][name][f"{way}_packets"] for name in names]


def findings(run: Path) -> set[str]:
    """The names of a run's findings."""
    return {one["name"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}


def test_flooded_frame_reaches_every_port_of_the_other_end_once(tmp_path: Path) -> None:
    own = ("stream.payload_bytes=512", "stream.rate=2kpps", "stream.schedule=regular", "bed.far=3")
    run = measured(tmp_path, "loss", *own)
    for to, further in (("unicast", 0), ("unknown", 200)):
        found = trials(run, to=to)
        assert len(found) == 4
        for trial in found:
            assert [flow["sent"] for flow in trial["sent"]] == [200]
            assert [(flow["lost"], flow["duplicated"]) for flow in trial["received"]] == [(0, 0)]
            assert counted(trial, "rx", "b", 3) == [200, further, further]
    assert "clock_unsynchronised" not in findings(run)


def test_several_senders_to_one_port_each_use_their_own_port(tmp_path: Path) -> None:
    """Over clocks of their own, brought together by exchanges."""
    own = ("stream.payload_bytes=512", "stream.senders=1,3", "stream.schedule=regular", "stream.interval=500us")
    run = measured(tmp_path, "fan-in", *own)
    found = trials(run, senders=3)
    assert len(found) == 4
    for trial in found:
        sent = [flow["sent"] for flow in trial["sent"]]
        assert len(sent) == 3
        assert {(flow["flow"], flow["lost"], flow["port"]) for flow in trial["received"]} == {
            (1, 0, 0), (2, 0, 0), (3, 0, 0)
        }  # fmt: skip
        exchanges = counted(trial, "tx", "a", 3)
        assert all(there >= own for there, own in zip(exchanges, sent, strict=True)), (exchanges, sent)
        assert counted(trial, "rx", "b", 1) == [sum(exchanges)]
    streams = read_table(run / "records", "streams").frame.filter(purpose="measure", device="bridge")
    lines = read_table(run / "records", "clock_lines").frame
    assert set(streams["block"]) <= set(lines["block"])
    delays = [row for row in rows(run, "one_way_delay", "mean") if row["device"] == "bridge"]
    assert {row["senders"] for row in delays} == {1, 3}
    assert all(0 < row["clock_error95_ns"] <= row["clock_bound_ns"] < 20e6 for row in delays)
    assert "clock_unsynchronised" not in findings(run)


def test_each_multicast_receiver_gets_each_frame_and_its_clock_is_aligned(tmp_path: Path) -> None:
    own = ("stream.kind=one-way,answers", "stream.payload_bytes=64", "stream.to=multicast", "stream.receivers=0,2",
           "trials.probes=100")  # fmt: skip
    run = measured(tmp_path, "multicast", *own)
    found = trials(run, kind="one-way", receivers=2)
    assert found
    for trial in found:
        [sent] = [flow["sent"] for flow in trial["sent"]]
        assert sorted((flow["port"], flow["lost"]) for flow in trial["received"]) == [(0, 0), (1, 0), (2, 0)]
        assert len(set(counted(trial, "rx", "b", 3))) == 1
        assert counted(trial, "rx", "b", 1)[0] >= sent
    for trial in trials(run, kind="answers", receivers=2):
        assert trial["answers"]
        answered, exchanged = trial["sent"][0]["sent"], trial["clock"][0]["exchanges"]
        assert counted(trial, "rx", "b", 3) == [answered + exchanged] * 3
        assert counted(trial, "tx", "b", 3) == [answered + exchanged] * 3
    assert "clock_unsynchronised" not in findings(run)


def test_through_load_has_its_own_ports_and_bypass_load_its_own_bridge(tmp_path: Path) -> None:
    own = ("stream.load=0%,50%", "stream.payload_bytes=512", "trials.probes=100")
    run = measured(tmp_path, "background", *own)
    for via in ("through", "beside"):
        found = trials(run, load_via=via, kind="one-way")
        assert found
        for trial in found:
            second = counted(trial, "tx", "a", 2)[1]
            assert (second > 0) == (via == "through"), (via, second)
    assert "clock_unsynchronised" not in findings(run)


@pytest.mark.parametrize(
    ("near", "far", "crossed", "found"),
    [
        (3, 2, None, None),
        (3, 2, 2, "what eth3 of host A sends comes in at eth3 of host device, not at eth2 of host device"),
        (1, 3, 3, "what eth3 of host B sends comes in at eth4 of host device, not at eth3 of host device"),
    ],
    ids=["as described", "crossed at A", "crossed at B"],
)
def test_a_check_of_the_bed_tries_every_port_and_finds_crossed_cables(
    near: int, far: int, crossed: int | None, found: str | None, tmp_path: Path
) -> None:
    cables, paths = cabled(["bridge"], near=near, far=far)
    if crossed is not None:
        (host, port, to, to_port), (_, other, _, to_other) = cables[crossed : crossed + 2]
        cables[crossed : crossed + 2] = [(host, other, to, to_port), (host, port, to, to_other)]
    with Hosts(tmp_path / "lab", cables=cables) as hosts:
        done = hosts.sojourn("bed", "check", str(hosts.bed(paths)), "--json")
        checks = {one["name"]: one for one in printed("bed-check", done.stdout)["checks"]}
        await_nothing(hosts, 5)
    assert {name for name in checks if name.startswith("path ")} == {"path direct", "path bridge"}
    assert checks["path direct"]["status"] == "ok"
    path = checks["path bridge"]
    assert (path["status"], done.returncode) == (("ok", 0) if found is None else ("missing", 3)), path
    if found is not None:
        assert path["found"] == found
        assert path["fix"] == "is each port of a and b cabled to the one in its place of left and right?"
