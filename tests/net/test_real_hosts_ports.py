"""Several ports at an end of a path between real hosts: what each of them sent and got, frame by frame."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sojourn.records import read_table
from tests.cabled import cabled, ports_at
from tests.net.busy_machine import idle_ends
from tests.net.real_hosts import SSHD, Hosts
from tests.net.test_real_hosts import await_nothing
from tests.net.test_real_hosts_studies import JOIN, events, rows, run_over_ssh
from tests.unit.printed_json import printed

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]
TRIALS = ("bed.sessions=1", "trials.rounds=2", "trials.duration=100ms", "trials.grace=50ms")
DUT = "dut:box"
DEVICES = ("bridge", DUT)
"""The bridge that Sojourn builds, and one that it does not."""
MOSTLY = ("bridge", pytest.param(DUT, marks=pytest.mark.proof))


def measured(folder: Path, study: str, device: str, *sets: str) -> Path:
    """The run of a study over one device alone, shortened."""
    sets = (*TRIALS, f"devices={device}", *sets)
    words = [word for one in sets for word in ("--set", one)]
    return run_over_ssh(folder, study, *words, *idle_ends(), over_dut=device == DUT)


def trials(run: Path, device: str, **asked: object) -> list[dict[str, Any]]:
    """The trials over the device that count, of these factors."""
    return [
        one
        for one in events(run, "stream-trial")
        if (one["purpose"], one["device"], one["kept"]) == ("measure", device, True)
        and all(one["factors"][name] == value for name, value in asked.items())
    ]


def counted(trial: dict[str, Any], way: str, end: str, ports: int) -> list[int]:
    """Frames that each port of an end counted."""
    name = f"{end}-{trial['device'].removeprefix('dut:')}"
    names = [name, *(f"{name}-{j}" for j in range(2, ports + 1))]
    return [trial["counters"][one][f"{way}_packets"] for one in names]


def findings(run: Path) -> set[str]:
    """The names of a run's findings."""
    return {one["name"] for one in json.loads((run / "analysis/verdict.json").read_text())["findings"]}


@pytest.mark.parametrize("device", MOSTLY)
def test_flooded_frame_reaches_every_port_of_the_other_end_once(device: str, tmp_path: Path) -> None:
    own = ("stream.payload_bytes=512", "stream.rate=2kpps", "stream.schedule=regular", "bed.far=3")
    run = measured(tmp_path, "loss", device, *own)
    for to, further in (("unicast", 0), ("unknown", 200)):
        found = trials(run, device, to=to)
        assert len(found) == 4
        for trial in found:
            assert [flow["sent"] for flow in trial["sent"]] == [200]
            assert [(flow["lost"], flow["duplicated"]) for flow in trial["received"]] == [(0, 0)]
            assert counted(trial, "rx", "b", 3) == [200, further, further]
    assert "clock_unsynchronised" not in findings(run)


@pytest.mark.parametrize("device", DEVICES)
def test_several_senders_to_one_port_each_use_their_own_port(device: str, tmp_path: Path) -> None:
    """Over clocks of their own, brought together by exchanges."""
    own = ("stream.payload_bytes=512", "stream.senders=1,3", "stream.schedule=regular", "stream.interval=500us")
    run = measured(tmp_path, "fan-in", device, *own)
    found = trials(run, device, senders=3)
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
    streams = read_table(run / "records", "streams").frame.filter(purpose="measure", device=device)
    lines = read_table(run / "records", "clock_lines").frame
    assert set(streams["block"]) <= set(lines["block"])
    delays = [row for row in rows(run, "one_way_delay", "mean") if row["device"] == device]
    assert {row["senders"] for row in delays} == {1, 3}
    assert all(0 < row["clock_error95_ns"] <= row["clock_bound_ns"] < 20e6 for row in delays)
    assert "clock_unsynchronised" not in findings(run)


@pytest.mark.parametrize("device", DEVICES)
def test_each_multicast_receiver_gets_each_frame_and_its_clock_is_aligned(device: str, tmp_path: Path) -> None:
    own = ("stream.kind=one-way,answers", "stream.payload_bytes=64", "stream.to=multicast", "stream.receivers=0,2",
           "trials.probes=100")  # fmt: skip
    run = measured(tmp_path, "multicast", device, *own)
    found = trials(run, device, kind="one-way", receivers=2)
    assert found
    for trial in found:
        [sent] = [flow["sent"] for flow in trial["sent"]]
        assert sorted((flow["port"], flow["lost"]) for flow in trial["received"]) == [(0, 0), (1, 0), (2, 0)]
        assert len(set(counted(trial, "rx", "b", 3))) == 1
        assert counted(trial, "rx", "b", 1)[0] >= sent
    for trial in trials(run, device, kind="answers", receivers=2):
        assert trial["answers"]
        answered, exchanged = trial["sent"][0]["sent"], trial["clock"][0]["exchanges"]
        assert counted(trial, "rx", "b", 3) == [answered + exchanged] * 3
        assert counted(trial, "tx", "b", 3) == [answered + exchanged] * 3
    assert "clock_unsynchronised" not in findings(run)


@pytest.mark.parametrize("device", MOSTLY)
def test_through_load_has_its_own_ports_and_bypass_load_its_own_bridge(device: str, tmp_path: Path) -> None:
    """All ports of the device that Sojourn does not build are one switch's, which would be its own bypass."""
    ways = ("through", "beside") if device == "bridge" else ("through",)
    own = ("stream.load=0%,50%", "stream.payload_bytes=512", "trials.probes=100", f"stream.load_via={','.join(ways)}")
    run = measured(tmp_path, "background", device, *own)
    for via in ways:
        found = trials(run, device, load_via=via, kind="one-way")
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


def checked(hosts: Hosts, paths: str) -> tuple[int, dict[str, Any]]:
    """The status and the checks of the bed's paths, over devices of others."""
    done = hosts.sojourn("bed", "check", str(hosts.bed(paths, names=("a", "b"))), "--json")
    found = {one["name"]: one for one in printed("bed-check", done.stdout)["checks"]}
    await_nothing(hosts, 5)
    return done.returncode, {name: one for name, one in found.items() if "path " in name}


LISTENING = "ip link set dev switch type bridge stp_state 1 forward_delay 400"


def test_a_check_of_the_bed_waits_until_a_switch_joins_its_ports(tmp_path: Path) -> None:
    """Its spanning tree lets no frame pass for eight seconds after a link has come up."""
    cables, paths = cabled([DUT], near=3, far=2)
    with Hosts(tmp_path / "lab", cables=cables) as hosts:
        hosts.at("device", "sh", "-ec", JOIN + LISTENING, "sh", *ports_at(cables, "device"))
        status, found = checked(hosts, paths)
        assert (status, set(found)) == (0, {"path direct", f"path {DUT}", f"ports of path {DUT}"}), found
        assert {one["status"] for one in found.values()} == {"ok"}
        ports = found[f"ports of path {DUT}"]
        assert ports["found"] == "each of 3 at A and 2 at B gets what those opposite send"


def test_a_check_of_the_bed_names_ports_that_a_device_does_not_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One port of A is in another VLAN, and another path in this one."""
    monkeypatch.setattr("sojourn.bed.joined.JOINED_SECONDS", 1.0)
    cables, paths = cabled([DUT, "dut:other"], near=2, far=2)
    with Hosts(tmp_path / "lab", cables=cables) as hosts:
        every = ports_at(cables, "device")
        hosts.at("device", "sh", "-ec", JOIN, "sh", *every)
        status, found = checked(hosts, paths)
        assert status == 0
        ports = found[f"ports of path {DUT}"]
        others = "eth4 of host A, eth4 of host B, eth5 of host A, eth5 of host B"
        assert (ports["status"], sorted(ports["found"].removeprefix("what its ports send comes in at ").removesuffix(
            ", too").split(", "))) == ("limited", sorted(others.split(", ")))  # fmt: skip
        hosts.at("device", "ip", "link", "set", "dev", every[1], "nomaster")
        status, found = checked(hosts, paths)
        ports = found[f"ports of path {DUT}"]
        assert (status, ports["status"]) == (3, "missing")
        assert ports["found"] == "what eth3 of host A sends does not reach eth2 of host B, eth3 of host B"
        run = ("run", "fan-in", "--quick", "--set", "stream.senders=2", "--device", DUT, "--no-history", "--out", "run")
        done = hosts.sojourn(*run, "--bed", str(hosts.bed(paths, names=("a", "b"))))
        assert done.returncode == 3, done.stderr
        assert f"path {DUT}: what eth3 of host A sends does not reach eth2 of host B;" in done.stderr
        await_nothing(hosts, 5)
