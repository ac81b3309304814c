"""A file of real hosts: what it may say, and each wrong word with its line."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import BedSpec, HostSpec, LinkSpec, PathSpec
from sojourn.bed.backends.ssh import require_fit
from sojourn.bed.drawing import drawing
from sojourn.bed.hosts import ports_of
from sojourn.bed.joined import silent
from sojourn.bed.look import TOOLS, Looked, cpus_of, parse
from sojourn.bed.model import End, Topology, checked
from sojourn.bed.negotiated import delaying, judge_port, judge_rates
from sojourn.bed.real_hosts import judge_cable, judge_clock, judge_way
from sojourn.bed.ssh import Line, why
from sojourn.bed.turns import Turns
from sojourn.cli.dry_run import expansion, show_plan
from sojourn.conduct import real_hosts
from sojourn.conduct.drops import located
from sojourn.conduct.real_hosts import hosts_of, paths_of, refused_with_two_clocks
from sojourn.errors import MachineError, RequestError
from sojourn.plan import effective_toml, load_plan
from sojourn.plan.clock_trials import clock_trials_ns
from sojourn.plan.load import plan_from_text
from sojourn.plan.real_bed import load_real_bed, real_bed_of

if TYPE_CHECKING:
    from pathlib import Path

ENDS = '[hosts.a]\naddress = "a.lab"\n[hosts.b]\naddress = "b.lab"\nuser = "lab"\n'
DIRECT = '[paths.direct]\na = "eth1"\nb = "eth1"\n'
DEVICE = '[hosts.device]\naddress = "br.lab"\nsudo = false\n'
LOOKED = Looked(
    uid=0, boot_id="", release="6.1.0", version="", architecture="x86_64", distribution="", cpu="", cpus=(0,),
    memory_bytes=0, clocksource="tsc", management="", tools=frozenset(TOOLS), links={}, routes=(), free_bytes=0,
    sudo="yes", ahead_ns=0, ahead_error_ns=20_000_000,
)  # fmt: skip
BRIDGE = '[paths.bridge]\na = "eth2"\nleft = "eth1"\nright = "eth2"\nb = "eth2"\n'
CISCO = '[paths."dut:cisco"]\na = "eth2"\nb = "eth2"\n'


THROUGH = DIRECT + 'left = "eth8"\nright = "eth9"\n'
TURNS = DIRECT + 'switch = "./v d"\n' + CISCO.replace("eth2", "eth1") + 'switch = "person"\n'


def test_paths_that_share_ports_have_one_link_connected_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "bed.toml").write_text(ENDS + TURNS)
    bed = load_real_bed(tmp_path / "bed.toml")
    assert (bed.paths["direct"].switch, bed.paths["dut:cisco"].switch) == (f"{tmp_path}/v d", "person")
    spec = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths_of(bed), layout=4)
    topology = Topology.of_spec(checked(spec))
    direct, cisco = topology.links
    assert (direct.a_port, direct.b_port) == (cisco.a_port, cisco.b_port)
    assert topology.laid == (direct,)
    turns = Turns(topology, spec)
    assert (turns.groups, turns.by_person) == ([["direct", "dut:cisco"]], True)
    assert Turns(topology, replace(spec, layout=5)).groups == [["dut:cisco", "direct"]]
    assert [turns.place_of(path) for path in ("a/a", "dut:cisco")] == ["direct", "dut:cisco"]


def test_hosts_and_paths_are_read_with_their_defaults() -> None:
    bed = real_bed_of(ENDS + DEVICE + DIRECT + BRIDGE, "bed.toml")
    assert (bed.hosts["a"].address, bed.hosts["b"].user, bed.hosts["a"].folder) == ("a.lab", "lab", "/var/tmp")
    assert (bed.hosts["a"].sudo, bed.hosts["device"].sudo) == (True, False)
    assert bed.devices == ("bridge",)
    assert (bed.paths["bridge"].left, bed.paths["direct"].left) == (("eth1",), ())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("[hosts.a]\nadress = 1\n", r"bed.toml, line 2: unknown key hosts.a.adress: expected address"),
        ('[hosts.c]\naddress = "c"\n', r"line 2: unknown host c: expected one of a \(asks\), b \(answers\), device"),
        ("[links]\nx = 1\n", r"line 2: unknown key links.x: expected a key of \[hosts.a\]"),
        ('[hosts.a]\nuser = "x"\n[hosts.b]\naddress = "b"\n', r"the key hosts.a.address is missing"),
        ('[hosts.a]\naddress = "a"\n', r"the host b is missing: expected a section \[hosts.b\]"),
        (ENDS, r"the path without a device is missing.*\[paths.direct\]"),
        (ENDS + DIRECT + BRIDGE, r"line 10: path bridge is a device that Sojourn builds: expected a section"),
        (ENDS + DIRECT + CISCO.replace("cisco", "cisco/2"), r"path dut:cisco/2: expected a section \[paths.dut"),
        (ENDS + DEVICE + DIRECT + CISCO + 'left = "eth9"\n', r"path dut:cisco: expected no left and right"),
        (ENDS + DEVICE + DIRECT + 'left = "eth9"\n', "line 10: path direct goes through .*: expected a section"),
        (ENDS + THROUGH, r"path direct goes through the host of devices: expected a section \[hosts.device\]"),
        (ENDS + DEVICE + THROUGH + CISCO.replace("dut:cisco", "a/a"), "path a/a: expected left and right, as path dir"),
        (ENDS + DEVICE + DIRECT + BRIDGE.replace("bridge", '"a/a"'), "path a/a: expected no left and right: path"),
        (ENDS + DEVICE + THROUGH.replace('"eth9"', '["eth9", "eth7"]'), "path direct: right has 2 and b has 1: exp"),
        (ENDS + DEVICE + THROUGH + 'switch = "x"\n', "path direct: expected no switch: what is joined by left"),
        (ENDS + DIRECT + CISCO.replace("eth2", "eth1") + 'switch = "x"\n', r"eth1 of host a is a port of path direct"),
        (ENDS + TURNS.replace('a = "eth1"\nb = "eth1"\nswitch = "p', 'a = "eth1"\nb = "eth3"\nswitch = "p'),
         r"the same two ports and a key switch in both"),
        (ENDS + DEVICE + DIRECT + BRIDGE + 'switch = "x"\n', r"path bridge: expected no switch"),
        (ENDS + DIRECT + '[paths.cisco]\na = "eth2"\nb = "eth2"\n', r'path cisco: expected direct, "dut:<label>"'),
        (ENDS + DIRECT + CISCO.replace('a = "eth2"', 'a = "eth1"'),
         r"line 10: eth1 of host a is a port of path direct already: expected another interface"),
        (ENDS + DIRECT.replace("eth1", "eth 1"), r'paths.direct.a = "eth 1": expected the name of an interface'),
        (ENDS + '[hosts.device]\naddress = "-oX=y"\n' + DIRECT, r"hosts.device.address = .*: expected a name"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_refused_with_its_line(words: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        real_bed_of(words, "bed.toml")


def test_forecast_between_hosts_has_the_comparisons_of_their_clocks(tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DIRECT + CISCO)
    given = ["trials.qualify=false", "trials.at_most=1h"]
    there = load_plan("one-way", quick=True, sets=given, backend=str(file))
    compared = there.expand()
    own = sum(trial.duration_ns + there.trials.grace_ns for trial in compared)
    assert there.ask.estimate(there, compared).measuring_ns >= own + 0.8e9 * len(compared)


@pytest.mark.parametrize(
    ("study", "sets", "clock_trials"),
    [
        # Before the first round of each session, and behind each of 3 rounds of two trials of 2.5 s.
        ("short-flows", ["bed.sessions=3", "rounds=3", "short.size_bytes=10000,20000", "transfers=20"], 3 + 3),
        # Each trial of a second is between two of its own: 2 rounds of 5.
        ("ping-wait", ["bed.sessions=1", "pairs.rounds=2", "departures.tools=probe", "departures.count=1000",
                       "probe.icmp_bytes=64", "probe.interval=1ms,1.1ms,1.2ms,1.3ms,1.4ms"], 1 + 2 + 2 * 4),
        # Its streams have exchanges of their own, and round trips have one clock.
        ("one-way", [], 0),
        ("bridge-latency", [], 0),
    ],
)  # fmt: skip
def test_forecast_between_hosts_has_the_clock_trials(
    study: str, sets: list[str], clock_trials: int, tmp_path: Path
) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DIRECT + CISCO)
    there = load_plan(study, sets=sets, backend=str(file))
    here = replace(there, bed=replace(there.bed, hosts=None))
    trials = there.expand()
    found, without = (plan.ask.estimate(plan, trials) for plan in (there, here))
    own_ns = found.measuring_ns - without.measuring_ns
    assert found.total_ns - without.total_ns == own_ns + clock_trials * 1_000_000_000
    assert (own_ns > 0) == (study == "one-way"), "the time limit does not include clock trials"


def test_forecast_has_the_clock_trials_of_the_rounds_within_the_time_limit(tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DIRECT + CISCO)
    every, half = (
        load_plan("short-flows", sets=["bed.sessions=1", "rounds=10", f"short.at_most={limit}"], backend=str(file))
        for limit in ("24h", "5min")
    )
    trials = every.expand()
    long, short = (plan.ask.estimate(plan, trials) for plan in (every, half))
    assert short.measuring_ns == 300e9 < long.measuring_ns
    share = short.measuring_ns / long.measuring_ns
    beside = [one.total_ns - one.measuring_ns for one in (long, short)]
    assert beside[0] - beside[1] == pytest.approx((1 - share) * clock_trials_ns(every, trials, long.measuring_ns))


def test_a_plan_measures_what_stands_between_the_hosts(tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DIRECT + CISCO)
    plan = load_plan("bridge-latency", backend=str(file))
    assert (plan.bed.backend, plan.bed.devices, plan.bed.twins) == ("ssh", ("dut:cisco",), False)
    assert plan.bed.hosts == str(file)
    again = plan_from_text(effective_toml(plan), "plan.toml", ())
    assert replace(again.bed, lines=plan.bed.lines) == plan.bed  # lines are of simulated beds alone
    with pytest.raises(RequestError, match=r"devices that .*bed.toml has a path for: dut:cisco"):
        load_plan("bridge-latency", backend=str(file), devices=["bridge"])
    with pytest.raises(RequestError, match=r'bed.backend = "ssh": expected a file of hosts beside it'):
        load_plan("bridge-latency", backend="ssh")
    with pytest.raises(RequestError, match=r"no.toml: cannot be read: No such file or directory"):
        load_plan("bridge-latency", backend=str(tmp_path / "no.toml"))


def test_second_instances_are_measured_if_ports_exist(tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    twins = CISCO.replace("cisco", "cisco/2").replace("eth2", "eth3") + '[paths."a/a"]\na = "eth4"\nb = "eth4"\n'
    file.write_text(ENDS + DIRECT + CISCO + twins)
    plan = load_plan("bridge-latency", backend=str(file))
    assert plan.twins == ("direct", "dut:cisco")


def test_the_control_of_streams_needs_a_second_direct_link_alone(tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DIRECT + CISCO)
    assert load_plan("one-way", backend=str(file)).twins == ()
    file.write_text(ENDS + DIRECT + CISCO + '[paths."a/a"]\na = "eth4"\nb = "eth4"\n')
    assert load_plan("one-way", backend=str(file)).twins == ("direct",)
    assert load_plan("bridge-latency", backend=str(file)).twins == ()
    assert not load_plan("throughput", backend=str(file)).bed.twins


def spec(**more: object) -> BedSpec:
    """A bed of two hosts with a cable and a device between them."""
    paths = {"direct": PathSpec(("eth1",), ("eth1",)), "dut:box": PathSpec(("eth2",), ("eth2",))}
    hosts = {"a": HostSpec("a"), "b": HostSpec("b")}
    own = {"backend": "ssh", "devices": ("dut:box",), "hosts": hosts, "paths": paths}
    return BedSpec(**own | more)  # type: ignore[arg-type]


def test_external_device_is_drawn_as_a_box_in_a_cable() -> None:
    topology = Topology.of_spec(checked(spec()))
    link = topology.link("dut:box")
    assert link.stations == ()
    assert [(cable.left.host, cable.right.host) for cable in link.cables] == [("a", "b")]
    assert link.boxes == ("device",)
    assert [host.name for host in topology.hosts] == ["a", "b"]
    with pytest.raises(RequestError, match="stands between real hosts"):
        checked(BedSpec(devices=("dut:box",)))


def test_links_between_hops_of_a_path_are_within_the_host_of_the_device() -> None:
    paths = {"direct": PathSpec(("e1",), ("e1",)), "bridge*2": PathSpec(("e2",), ("e2",), ("left",), ("right",))}
    hosts = {name: HostSpec(name) for name in ("a", "b", "device")}
    links = {"bridge*2": LinkSpec((None, 10_000_000, None))}
    topology = Topology.of_spec(checked(spec(devices=("bridge*2",), hosts=hosts, paths=paths, links=links)))
    real = ports_of(topology, paths)
    within = [cable for cable in topology.cables if cable.left.dev not in real]
    assert len(topology.cables) == 1 + 4
    assert sorted(real.values()) == ["e1", "e1", "e2", "e2", "left", "right"]
    assert [(one.left.host, one.right.host, one.right.dev in real) for one in within] == [("d", "d", False)] * 2
    with pytest.raises(RequestError, match="path 'dut:box' of a bed of real hosts: expected no rate or delay"):
        checked(spec(links={"dut:box": LinkSpec((10_000_000,))}))


RATE = {"direct": LinkSpec((10_000_000,))}


def test_a_direct_link_with_a_rate_goes_through_the_host_of_devices() -> None:
    twin = '[paths."a/a"]\na = "eth3"\nb = "eth3"\nleft = "eth4"\nright = "eth5"\n'
    bed = real_bed_of(ENDS + DEVICE + THROUGH + twin, "bed.toml")
    paths = paths_of(bed)
    asked = BedSpec(backend="ssh", hosts=hosts_of(bed), paths=paths, links=RATE, twins=("direct",))
    topology = Topology.of_spec(checked(asked))
    real = ports_of(topology, paths)
    joined = [(real[one.left.dev], one.left.host, real[one.right.dev], one.right.host) for one in topology.cables]
    assert joined == [
        ("eth1", "a", "eth8", "d"), ("eth9", "d", "eth1", "b"), ("eth3", "a", "eth4", "d"), ("eth5", "d", "eth3", "b")
    ]  # fmt: skip
    assert [(one.path, real[one.left.dev], real[one.right.dev]) for one in topology.emulated] == [
        ("direct", "eth8", "eth9"), ("a/a", "eth4", "eth5")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "links", "sentence"),
    [
        (DIRECT, RATE, "path 'direct' of a bed of real hosts: expected hosts.device and the keys left and right"),
        (THROUGH, {}, "path 'direct' of a bed of real hosts: expected a rate or delay in bed.links, or no left"),
    ],
)
def test_a_direct_link_that_its_ports_do_not_suit_is_refused(
    words: str, links: dict[str, LinkSpec], sentence: str
) -> None:
    bed = real_bed_of(ENDS + DEVICE + words, "bed.toml")
    with pytest.raises(RequestError, match=sentence):
        checked(BedSpec(backend="ssh", hosts=hosts_of(bed), paths=paths_of(bed), links=links))


def test_a_plan_says_which_way_its_direct_link_must_go(tmp_path: Path) -> None:
    file, rate = tmp_path / "bed.toml", "link_rate=100Mbit/s"
    file.write_text(ENDS + DEVICE + DIRECT + BRIDGE)
    with pytest.raises(RequestError, match=r"the study gives the direct link a rate .*: name left and right in the"):
        load_plan("frame-size", sets=[rate], backend=str(file))
    file.write_text(ENDS + DEVICE + THROUGH + BRIDGE.replace("eth1", "eth3"))
    for asked in (
        load_plan("frame-size", sets=[rate], backend=str(file)),
        load_plan("rated-frame-size", backend=str(file)),
    ):
        assert asked.bed.links.keys() == {"direct", "bridge"}
    with pytest.raises(RequestError, match="joins these ports only for studies that give") as refused:
        load_plan("bridge-latency", backend=str(file))
    fix = re.search(r"--set (\S+)$", str(refused.value))
    assert fix is not None
    assert "direct" in load_plan("bridge-latency", sets=[fix[1].replace('"', "")], backend=str(file)).bed.links


@pytest.mark.parametrize(
    ("study", "sets", "sentence"),
    [
        ("short-flows", ["devices=emulate"], "compares the hosts' clocks over the direct link, which has a rate"),
        ("one-way", ["devices=emulate"], "compares the hosts' clocks over the direct link, which has a rate"),
        ("one-way", ["devices=bridge"], None),
        ("bridge-latency", ["devices=bridge"], None),
    ],
)
def test_clocks_are_not_compared_through_an_emulator(
    study: str, sets: list[str], sentence: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DEVICE + THROUGH + "".join(
        BRIDGE.replace("bridge", name).replace('"eth', f'"{name}') for name in ("bridge", "emulate")))  # fmt: skip
    plan = load_plan(study, sets=[*sets, "bed.links.direct.delay=1ms"], backend=str(file))
    found = refused_with_two_clocks(plan)
    assert (found is None) if sentence is None else re.search(sentence, found or "")


SEVERAL = (
    '[paths.bridge]\na = ["eth2", "eth3", "eth4"]\nleft = ["eth1", "eth3", "eth4"]\n'
    'right = ["eth2", "eth5"]\nb = ["eth2", "eth3"]\n'
)


def test_a_path_may_have_several_ports_at_each_end() -> None:
    bed = real_bed_of(ENDS + DEVICE + DIRECT + SEVERAL, "bed.toml")
    paths = paths_of(bed)
    assert (paths["bridge"].a, paths["bridge"].right) == (("eth2", "eth3", "eth4"), ("eth2", "eth5"))
    assert paths["direct"] == PathSpec(("eth1",), ("eth1",))
    asked = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths, near=2, far=2)
    real = ports_of(Topology.of_spec(checked(asked)), paths)
    assert {dev: name for dev, name in real.items() if "bridge" in dev} == {
        "a-bridge": "eth2", "a-bridge-2": "eth3", "d-bridge-1l": "eth1", "d-bridge-1l2": "eth3",
        "b-bridge": "eth2", "b-bridge-2": "eth3", "d-bridge-1r": "eth2", "d-bridge-1r2": "eth5",
    }  # fmt: skip
    every = Topology.of_spec(checked(replace(asked, near=1, far=1, every_port=True)))
    assert (len(every.link("bridge").near), len(every.link("bridge").far)) == (3, 2)
    assert set(ports_of(every, paths)) >= {*real, "a-bridge-3", "d-bridge-1l3"}
    with pytest.raises(RequestError, match=r"path 'bridge' .*: expected 4 ports at A and 2 at B, and not 3 and 2"):
        checked(replace(asked, near=4))
    with pytest.raises(RequestError, match="expected 2 ports at A and 3 at B, and not 3 and 2"):
        checked(replace(asked, far=3))


def test_ports_of_rated_links_are_the_outer_ends_of_their_emulators() -> None:
    bed = real_bed_of(ENDS + DEVICE + DIRECT + SEVERAL, "bed.toml")
    links = {"bridge": LinkSpec((10_000_000, 100_000_000))}
    asked = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths_of(bed), near=3, links=links)
    topology = Topology.of_spec(checked(asked))
    real = ports_of(topology, paths_of(bed))
    found = {real[cable.left.dev]: real[cable.right.dev] for cable in topology.cables if cable.left.host == "a"}
    assert found == {"eth1": "eth1", "eth2": "eth1", "eth3": "eth3", "eth4": "eth4"}
    within = [one for one in topology.cables if one.left.dev not in real]
    assert all((one.left.host, one.right.host, one.right.dev in real) == ("d", "d", False) for one in within)
    assert len(within) == 3 + 1


PORTS = '[paths."dut:cisco"]\na = ["eth2", "eth3", "eth4"]\nb = ["eth2", "eth3"]\n'


def test_a_device_that_sojourn_does_not_build_may_have_several_ports_at_each_end() -> None:
    bed = real_bed_of(ENDS + DIRECT + PORTS, "bed.toml")
    assert bed.switches == ("dut:cisco",)
    paths = paths_of(bed)
    asked = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths, near=2, far=2)
    topology = Topology.of_spec(checked(asked))
    link = topology.link("dut:cisco")
    assert [port.dev for port in link.loose] == ["a-cisco-2", "b-cisco-2"]
    assert ports_of(topology, paths) == {
        "a-direct": "eth1", "b-direct": "eth1",
        "a-cisco": "eth2", "a-cisco-2": "eth3", "b-cisco": "eth2", "b-cisco-2": "eth3",
    }  # fmt: skip
    assert [port.dev for port in topology.ports("a")] == ["a-direct", "a-cisco", "a-cisco-2"]
    every = Topology.of_spec(checked(replace(asked, near=1, far=1, every_port=True)))
    assert (len(every.link("dut:cisco").near), len(every.link("dut:cisco").far)) == (3, 2)
    assert Topology.of_spec(checked(replace(asked, near=1, far=1))).link("dut:cisco").loose == ()
    with pytest.raises(RequestError, match=r"path 'dut:cisco' .*: expected 4 ports at A and 2 at B, and not 3 and 2"):
        checked(replace(asked, near=4))


def test_a_device_with_one_port_at_each_end_is_no_switch() -> None:
    """A firewall beside a bridge: the bridge's ports are not asked of it."""
    bed = real_bed_of(ENDS + DEVICE + DIRECT + SEVERAL + CISCO.replace("eth2", "eth7"), "bed.toml")
    assert bed.switches == ()
    asked = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths_of(bed), near=3, far=2)
    link = Topology.of_spec(checked(asked)).link("dut:cisco")
    assert (len(link.near), len(link.far), link.loose) == (1, 1, ())


def test_longest_names_of_ports_of_a_device_are_names_of_interfaces() -> None:
    every = [f"e{one}" for one in range(17)]
    paths = {"direct": PathSpec(("eth1",), ("eth1",))} | {
        f"dut:manylong{twin}": PathSpec(tuple(f"{one}{twin[1:]}" for one in every), ("eth2" + twin[1:],))
        for twin in ("", "/2")
    }
    asked = spec(devices=("dut:manylong",), paths=paths, twins=("dut:manylong",), near=17)
    links = Topology.of_spec(checked(asked)).links
    assert [len(link.near) for link in links] == [1, 17, 17]
    names = [port.dev for link in links for port in link.ports]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) == 15


def test_further_ports_of_a_device_are_drawn_at_it() -> None:
    bed = real_bed_of(ENDS + DIRECT + PORTS, "bed.toml")
    asked = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths_of(bed), near=2, far=2)
    drawn = drawing(Topology.of_spec(checked(asked)))
    own = [one for one in drawn["links"] if one["path"] == "dut:cisco"]
    assert {(one["from"], one["to"], one["from_port"] or one["to_port"]) for one in own} == {
        ("a", "dut:cisco/1", "a-cisco"), ("a", "dut:cisco/1", "a-cisco-2"),
        ("dut:cisco/1", "b", "b-cisco"), ("dut:cisco/1", "b", "b-cisco-2"),
    }  # fmt: skip
    assert len(drawn["text"].splitlines()) == 1 + 2 + 1


def test_drops_are_located_at_every_receiving_port_of_a_device() -> None:
    bed = real_bed_of(ENDS + DIRECT + PORTS, "bed.toml")
    asked = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths_of(bed), near=2, far=2)
    link = Topology.of_spec(checked(asked)).link("dut:cisco")
    counted = {port.dev: {"tx_dropped": 0, "rx_dropped": 5} for port in link.ports}
    assert located(link, counted) == {dev: {"ring": 0, "backlog": 5} for dev in ("b-cisco", "b-cisco-2")}


def test_ports_of_a_device_that_lack_the_frames_of_one_sender_are_named() -> None:
    """A few frames may be lost; without those of one of three senders a third is missing."""
    ports = [End("b", dev, 1, "", "", "") for dev in ("b-cisco", "b-cisco-2", "b-cisco-3")]
    came = {"b-cisco": 60, "b-cisco-2": 51, "b-cisco-3": 42}
    assert silent(came, ports, 3) == [ports[2]]
    assert silent({"b-cisco": 9, "b-cisco-2": 11, "b-cisco-3": 0}, ports, 1) == [ports[0], ports[2]]


LOADED = '[paths."bridge/bypass"]\na = "eth9"\nleft = "eth8"\nright = "eth9"\nb = "eth9"\n'


def test_bypass_is_a_separate_path_without_a_device() -> None:
    bed = real_bed_of(ENDS + DEVICE + DIRECT + SEVERAL + LOADED, "bed.toml")
    assert (bed.devices, "bridge/bypass" in bed.paths) == (("bridge",), True)
    every = BedSpec(backend="ssh", devices=bed.devices, hosts=hosts_of(bed), paths=paths_of(bed), every_port=True,
                    bypass=True)  # fmt: skip
    assert [link.path for link in Topology.of_spec(checked(every)).links] == ["direct", "bridge", "bridge/bypass"]
    with pytest.raises(RequestError, match=r"no path 'direct/bypass': expected one of .*did you mean bridge/b"):
        checked(replace(every, every_port=False))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (SEVERAL.replace('"eth1", "eth3", "eth4"', '"eth1", "eth3"'),
         r"line 14: path bridge: left has 2 and a has 3: expected as many: each of the one is cabled to"),
        (SEVERAL.replace('right = ["eth2", "eth5"]', 'right = "eth2"'), "line 15: path bridge: right has 1 and b has"),
        (SEVERAL.replace('"eth5"', '"eth4"'), "line 15: eth4 of host device is a port of path bridge already"),
        (SEVERAL.replace('["eth2", "eth3"]', '["eth2", "eth1"]'), "line 16: eth1 of host b is a port of path direct"),
        (SEVERAL.replace('["eth2", "eth3"]', '["eth2", "eth2"]'), r"paths.bridge.b = .*or a list of up to 17"),
        (SEVERAL.replace('["eth2", "eth3"]', '["eth2", "eth 3"]'), r"paths.bridge.b = .*: expected the name of an"),
        (SEVERAL.replace('["eth2", "eth3"]', "[]"), r"paths.bridge.b = \[\]: expected the name of an interface"),
        (SEVERAL.replace('["eth2", "eth3"]', str([f"e{one}" for one in range(18)])), r"list of up to 17 different"),
        (BRIDGE.replace("bridge", "wire").replace('a = "eth2"', 'a = ["eth2", "eth3"]'),
         "line 13: path wire: a has 2 ports: expected one: it joins two ports"),
        (PORTS + 'left = "eth7"\n', "line 13: path dut:cisco: expected no left and right: nothing is built there"),
        (PORTS + 'switch = "./vlans.sh"\n', "path dut:cisco: expected no switch: a path with several ports at an end"),
        (PORTS.replace('"eth4"', '"eth1"'), "eth1 of host a is a port of path direct already: expected another inter"),
        (CISCO + PORTS.replace("cisco", "cisco/bypass").replace('"eth2"', '"eth8"'),
         "path dut:cisco/bypass: a has 3 ports: expected one: a load beside a device has one pair of ports"),
        (LOADED, r"path bridge/bypass: expected a section \[paths.bridge\]"),
        (BRIDGE + LOADED.replace('"eth9"', '["eth9", "eth10"]'),
         "path bridge/bypass: a has 2 ports: expected one: a load beside a device has one pair of ports"),
    ],
)  # fmt: skip
def test_impossible_ports_of_a_path_are_refused_with_their_line(words: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        real_bed_of(ENDS + DEVICE + DIRECT + words, "bed.toml")


@pytest.mark.parametrize(
    ("study", "sentence"),
    [
        ("fan-in", r"needs 8 ports at A \(near\), and path bridge has 3: name more .*, or --set stream.senders=1,2,3$"),
        ("multicast", r"needs 6 ports at B \(far\), and path bridge has 2: .*, or --set stream.receivers=0,1$"),
        ("loss", r"needs 4 ports at B \(far\), and path bridge has 2: .*, or --set bed.far=2$"),
        ("background", r"direct has none: name \[paths.\"direct/bypass\"\] in .*, or --set stream.load_via=through$"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("device", ["bridge", "dut:cisco"])
def test_study_that_needs_more_ports_names_the_fix(study: str, sentence: str, device: str, tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DEVICE + DIRECT + (SEVERAL if device == "bridge" else PORTS))
    with pytest.raises(RequestError, match=sentence.replace("bridge", device)) as refused:
        load_plan(study, backend=str(file))
    fixed = re.search(r"--set (\S+)$", str(refused.value))
    assert fixed is not None
    plan = load_plan(study, sets=[fixed[1]], backend=str(file))
    assert max(plan.bed.near, plan.bed.far) > 1


def test_a_load_through_a_bridge_with_one_port_at_an_end_is_sent_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    beside = LOADED + LOADED.replace("bridge", "direct").replace("eth8", "eth6").replace("eth9", "eth7")
    beside = beside.replace('left = "eth6"\nright = "eth7"\n', "")
    file.write_text(ENDS + DEVICE + DIRECT + BRIDGE + beside)
    with pytest.raises(RequestError, match=r"needs 2 ports at A .*, or --set stream.load_via=beside$"):
        load_plan("background", backend=str(file))
    assert load_plan("background", sets=["stream.load_via=beside"], backend=str(file)).bed.near == 1


@pytest.mark.parametrize(
    ("study", "sentence"),
    [
        ("fan-in", r"the study needs 8 ports at A \(near\), and path dut:cisco has 1: .*, or --set stream.senders=1$"),
        ("multicast", r"needs 6 ports at B \(far\), and path dut:cisco has 1: .*, or --set stream.receivers=0$"),
        ("background", r"needs 2 ports at A \(near\), and path dut:cisco has 1: name more in the file of hosts$"),
        ("loss", r"stream.to = \"unknown\": expected a bridge in bed.devices, or a dut:<label> that has several ports"),
        ("rfc2889", r"expected bridges alone for rfc2889, .* or a dut:<label> that has several ports at an end"),
    ],
)  # fmt: skip
def test_study_over_a_device_with_one_port_at_each_end_asks_for_more(study: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DIRECT + CISCO)
    with pytest.raises(RequestError, match=sentence) as refused:
        load_plan(study, backend=str(file))
    assert refused.value.status == 2
    if fixed := re.search(r"--set (\S+)$", str(refused.value)):
        assert load_plan(study, sets=[fixed[1]], backend=str(file)).bed.outside_switches == ()


def test_no_option_is_named_that_would_be_refused_in_its_turn(tmp_path: Path) -> None:
    """One port at each end, and no second link: neither way of the load can be had."""
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DEVICE + DIRECT + BRIDGE)
    with pytest.raises(RequestError, match=r"needs 2 ports at A .*: name more in the file of hosts$"):
        load_plan("background", backend=str(file))
    with pytest.raises(RequestError, match=r"direct has none: name \[paths.\"direct/bypass\"\] in the file of hosts$"):
        load_plan("background", sets=["stream.load_via=beside"], backend=str(file))
    with pytest.raises(RequestError, match=r"direct has none: name \[paths.\"direct/bypass\"\] in the file of hosts$"):
        load_plan("bridge-latency", sets=["bed.bypass=true"], backend=str(file))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"devices": ("dut:other",)}, "the bed has no path 'dut:other': expected one of direct, dut:box"),
        ({"device_cpu": "own"}, "expected 'shared' on a bed of real hosts"),
        ({"devices": ("bridge",), "paths": {"direct": PathSpec(("e",), ("e",)), "bridge": PathSpec(("f",), ("f",))}},
         "path 'bridge' is a device that Sojourn builds: expected hosts.device and the keys left and right"),
        ({"devices": ("emulate",), "paths": {"direct": PathSpec(("e",), ("e",)), "emulate": PathSpec(("f",), ("f",))}},
         "path 'emulate' is a device that Sojourn builds: expected hosts.device and the keys left and right"),
    ],
)  # fmt: skip
def test_options_unsupported_on_real_hosts_are_refused(more: dict[str, object], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        checked(spec(**more))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("ssh: connect to host 10.0.0.9 port 22: Connection refused", "it cannot be reached: connect to host 10.0.0.9"),
        ("ssh: Could not resolve hostname a.lab: Name or service not known", "it cannot be reached: Could not resolve"),
        ("lab@a: Permission denied (publickey).", r"it refuses the login \(lab@a: Permission denied .*: try ssh a"),
        ("No ED25519 host key is known for a\nHost key verification failed.", "its host key is not known yet: connect"),
        ("@@ REMOTE HOST IDENTIFICATION HAS CHANGED! @@\nOffending ED25519 key in /k:3\nHost key verification failed.",
         "its host key is not the one in /k:3: another host answers in its place"),
    ],
)  # fmt: skip
def test_ssh_errors_become_one_sentence(said: str, sentence: str) -> None:
    assert re.search(sentence, why(said, HostSpec("a")))


def test_processor_lists_are_parsed() -> None:
    assert cpus_of("0-2,8") == [0, 1, 2, 8]


@pytest.mark.parametrize(
    ("said", "told", "fix"),
    [
        ("\tSpeed: 1000Mb/s\n\tDuplex: Full\n", "1000Mb/s, duplex full", None),
        ("\tSpeed: 100Mb/s\n\tDuplex: Half\n", "100Mb/s, duplex half", "half duplex: negotiate"),
        ("\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n", "speed not told, duplex not told", None),
        ("\tSpeed: 25000Mb/s\n\tDuplex: Full\n== coalescing\nAdaptive RX: on  TX: on\nrx-usecs: 8\n",
         "25000Mb/s, duplex full, coalescing adaptive", "interrupts wait for more frames: ethtool -C DEV adaptive-rx"),
        ("\tSpeed: 1000Mb/s\n\tDuplex: Full\n== coalescing\nrx-usecs: 50\n== eee\n\tEEE status: enabled - active\n",
         "coalescing 50 us, energy-efficient Ethernet active", "the link sleeps"),
        (("\tSpeed: 1000Mb/s\n\tDuplex: Full\n== offloads\nFeatures for eth1:\nrx-checksumming: on\n"
         "tcp-segmentation-offload: off\n\ttx-tcp-segmentation: off\ngeneric-segmentation-offload: on\n"
         "generic-receive-offload: on\nlarge-receive-offload: off [fixed]\n"),
         "1000Mb/s, duplex full, offloads on: gro gso", None),
    ],
)  # fmt: skip
def test_ethtool_output_of_a_port_is_evaluated(said: str, told: str, fix: str | None) -> None:
    found, wanted = judge_port(said)
    assert told in found
    assert (wanted is None) if fix is None else (wanted is not None and fix in wanted)


@pytest.mark.parametrize(
    ("ahead_s", "status", "told"),
    [
        (3600.0, "limited", "3600.000 s ahead of ours, with an error of at most 0.020 s"),
        (-0.5, "ok", "0.500 s behind ours"),
        (0.01, "ok", "ours, within 21 ms"),
    ],
)
def test_large_clock_offsets_are_reported(ahead_s: float, status: str, told: str) -> None:
    looked = replace(LOOKED, ahead_ns=round(ahead_s * 1e9))
    found = judge_clock(looked)
    assert (found.status, bool(found.fix)) == (status, status == "limited")
    assert found.found.startswith(told)


def both(packets: int) -> dict[str, int]:
    """A port that got and sent so many packets."""
    return {"rx_packets": packets, "tx_packets": packets}


@pytest.mark.parametrize(
    ("grown", "sentence"),
    [
        ({"a-direct": 22, "b-direct": 20, "d-bridge-1l": 3}, None),
        ({"a-direct": 20, "b-direct": 20, "d-bridge-1l": 20, "d-bridge-1r": 20},
         "B answers, but the probes passed d-bridge-1l, d-bridge-1r"),
        ({"a-direct": 20, "b-direct": 1, "b-bridge": 20},
         "B answers, but the probes did not pass b-direct and passed b-bridge"),
    ],
)  # fmt: skip
def test_probes_on_ports_of_another_path_are_reported(grown: dict[str, int], sentence: str | None) -> None:
    counted = {dev: both(packets) for dev, packets in grown.items()}
    assert judge_way({"a-direct", "b-direct"}, (), 20, counted) == sentence


def test_a_further_port_may_get_what_a_switch_floods() -> None:
    counted = {"a-bridge": both(20), "a-bridge-2": both(20), "a-direct": both(0)}
    assert judge_way({"a-bridge"}, {"a-bridge-2"}, 20, counted) is None
    assert judge_way({"a-bridge"}, (), 20, counted) == "B answers, but the probes passed a-bridge-2"


LEADS = {"a-bridge": "d-l", "a-bridge-2": "d-l2", "b-bridge": "d-r", "b-bridge-2": "d-r2"}


@pytest.mark.parametrize(
    ("came", "sentence"),
    [
        ({"d-l": 22, "b-bridge-2": 20, "d-l2": 9}, None),
        ({"d-l": 10, "b-bridge-2": 10}, None),
        ({"d-r": 20, "b-bridge-2": 20}, "what a-bridge sends comes in at d-r, not at d-l"),
        ({"d-l": 9, "b-bridge-2": 20}, "what a-bridge sends does not come in at d-l"),
        ({"d-l": 20, "d-r2": 10}, "what a-bridge sends comes in at d-l, and at d-r2, too"),
        ({"d-l": 20, "b-bridge-2": 9}, "what a-bridge sends does not reach b-bridge-2"),
    ],
)
def test_a_cable_that_leads_elsewhere_is_told_by_where_frames_come_in(
    came: dict[str, int], sentence: str | None
) -> None:
    """What a port sends itself counts for nothing: a bridge sends the frames out of every other port."""
    grown = {dev: {"rx_packets": came.get(dev, 0), "tx_packets": 20} for dev in (*LEADS.values(), "b-bridge-2")}
    assert judge_cable("a-bridge", LEADS, ["b-bridge-2"], grown) == sentence


def line_to(spec: HostSpec) -> Line:
    """A line that nothing is said over."""
    line = object.__new__(Line)
    line.name, line.spec = "A", spec
    return line


def program_for(machine: int) -> bytes:
    """The head of an ELF program."""
    return b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + machine.to_bytes(2, "little")


ASKS = "sudo: a password is required"
NAMED = "name one built for x86_64: SOJOURN_INSTRUMENT_X86_64=FILE"
OR_NAMED = "in the source tree here, or name one built for aarch64: SOJOURN_INSTRUMENT_AARCH64=FILE"


@pytest.mark.parametrize(
    ("more", "spec", "machine", "sentence"),
    [
        ({"release": "5.14.21-amd64"}, HostSpec("a.lab"), 62,
         "host A (a.lab) has Linux 5.14.21-amd64: it needs 5.15 or newer"),
        ({"release": "5"}, HostSpec("a.lab"), 62, "host A (a.lab) has Linux 5: it needs 5.15 or newer"),
        ({"architecture": "aarch64"}, HostSpec("a.lab"), 62,
         f"host A (a.lab) is aarch64, and the instrument here is built for x86_64: run `make arm64` {OR_NAMED}"),
        ({}, HostSpec("a.lab"), 183,
         f"host A (a.lab) is x86_64, and the instrument here is built for aarch64: {NAMED}"),
        ({}, HostSpec("a.lab"), 8,
         f"host A (a.lab) is x86_64, and the instrument here is built for machine 8 of ELF: {NAMED}"),
        ({"uid": 1000}, HostSpec("a.lab", sudo=False), 62,
         "host A (a.lab): who logs in is not root: log in as root, or set sudo = true for it"),
        ({"uid": 1000, "sudo": ASKS}, HostSpec("a.lab", user="lab"), 62,
         f"host A (a.lab): no rights of root ({ASKS}): sudo must ask no password of lab (see the guide on real hosts)"),
        ({"uid": 1000, "sudo": "sh: 21: sudo: not found"}, HostSpec("a.lab"), 62,
         "host A (a.lab) has no sudo: apt-get install sudo, or log in as root"),
        ({"tools": frozenset(TOOLS) - {"tc", "ip"}}, HostSpec("a.lab"), 62,
         "host A (a.lab) has no ip, tc: apt-get install iproute2"),
    ],
)  # fmt: skip
def test_a_host_that_cannot_hold_a_bed_is_refused(
    more: dict[str, Any], spec: HostSpec, machine: int, sentence: str
) -> None:
    with pytest.raises(MachineError) as refused:
        require_fit(line_to(spec), replace(LOOKED, **more), program_for(machine))
    assert (str(refused.value), refused.value.status) == (sentence, 3)


@pytest.mark.parametrize(
    "more", [{}, {"release": "5.15+"}, {"release": "6.12-rc1"}, {"uid": 1000}, {"uid": 0, "sudo": "not found"}]
)
def test_a_host_that_can_hold_a_bed_is_not_refused(more: dict[str, Any]) -> None:
    for program in (program_for(62), b"#!/bin/sh\n"):
        require_fit(line_to(HostSpec("a.lab")), replace(LOOKED, **more), program)


def test_messages_of_sudo_do_not_make_a_host_unusable() -> None:
    """A host that does not know its own name is warned of by sudo, which then does what it is asked."""
    answers = {
        "uid": "1000", "boot": "b", "machine": "m", "kernel": "6.1.0\n#1 SMP\nx86_64", "distribution": "Debian",
        "cpu": "c", "cpus": "0-1", "memory": "1024", "clocksource": "tsc", "ssh": "", "tools": "ip", "links": "[]",
        "routes": "[]", "routes6": "[]", "disk": "", "now": "5",
        "sudo": "sudo: unable to resolve host a: Name or service not known\nyes",
    }  # fmt: skip
    said = "".join(f"== {name}\n{words}\n" for name, words in answers.items())
    assert parse(said, 0, 10).sudo == "yes"
    assert parse(said.removesuffix("yes\n"), 0, 10).sudo.endswith("service not known")


def test_ports_of_a_path_with_other_speeds_are_named() -> None:
    assert judge_rates({}) is None
    assert judge_rates({"eth1 of host A": 1000, "eth1 of host B": 1000}) is None
    found = judge_rates({"eth1 of host A": 1000, "eth3 of host device": 100, "eth1 of host B": 1000})
    assert found == "eth3 of host device has 100 Mbit/s; the path's fastest port has 1000 Mbit/s"


def test_dry_run_names_what_two_unsynchronised_hosts_cannot_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No host of these names is there: nothing is asked."""
    file = tmp_path / "bed.toml"
    file.write_text(ENDS + DEVICE + THROUGH)
    refused = load_plan("ping-wait", sets=["bed.links.direct.delay=1ms"], backend=str(file))
    why = expansion(refused)["refused_with_two_clocks"]
    assert why.startswith("ping-wait compares the hosts' clocks over the direct link, which has a rate or delay")
    show_plan(refused, as_json=False)
    assert f"Unless its hosts are one machine, this will be refused: {why}." in capsys.readouterr().out
    file.write_text(ENDS + DEVICE + DIRECT + BRIDGE)
    for able in (*(load_plan(one, backend=str(file)) for one in ("bridge-latency", "ping-wait")), load_plan("stages")):
        assert "refused_with_two_clocks" not in expansion(able)


def test_a_method_that_brings_no_clocks_together_names_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load_plan("tcplog-truth")
    monkeypatch.setattr(real_hosts, "may_have_several_clocks", lambda ask: ask is not plan.ask)
    assert re.fullmatch(
        "tcplog-truth compares times of hosts whose clocks differ, and method tcp-truth does not bring these "
        r"together: measure it on one machine \(--bed netns\), or ask a study of method anomalies, .*, .* or variance",
        refused_with_two_clocks(plan) or "",
    )


GOOD = "\tSpeed: 1000Mb/s\n\tDuplex: Full\n"


@pytest.mark.parametrize(
    ("of_a", "of_b", "governors", "found"),
    [
        (GOOD, GOOD, [], []),
        ("\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n", GOOD, ["performance"], []),
        ("", "", [], []),
        ("\tSpeed: 100Mb/s\n\tDuplex: Half\n", GOOD, [],
         ["Path direct: eth1 of host A has 100Mb/s, duplex half",
          "Path direct: eth1 of host A has 100 Mbit/s; the path's fastest port has 1000 Mbit/s"]),
        (GOOD, GOOD + "Adaptive RX: on  TX: off\n", [],
         ["Path direct: eth2 of host B has 1000Mb/s, duplex full, coalescing adaptive"]),
        (GOOD + "rx-usecs:\t3\n", GOOD, [], ["Path direct: eth1 of host A has 1000Mb/s, duplex full, coalescing 3 us"]),
        (GOOD, GOOD, ["powersave", "performance"], ["Host A (a.lab) has governor powersave"]),
    ],
)  # fmt: skip
def test_settings_that_delay_frames_are_reported_with_interface_names(
    of_a: str, of_b: str, governors: list[str], found: list[str]
) -> None:
    says = {"a-direct": of_a, "b-direct": of_b}
    backend: Any = SimpleNamespace(
        run=lambda _host, _argv, lines: "".join(f"= {dev}\n{says[dev]}" for dev in lines.split()),
        governors=lambda: {"host A (a.lab)": governors} if governors else {},
    )
    topology = Topology.of_spec(BedSpec())
    told = delaying(backend, topology, {"a-direct": "eth1", "b-direct": "eth2"})
    assert [one.rpartition(": frames wait")[0] or one.partition(": it changes")[0] for one in told] == found
