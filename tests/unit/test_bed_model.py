"""What a bed is before it is built: names, addresses, and sentences for requests that cannot be."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from sojourn import devices
from sojourn.bed import BedSpec, LinkSpec, Topology, build_bed, machine
from sojourn.bed.cores import cpu_mask
from sojourn.bed.device_cpu import DeviceCpu
from sojourn.bed.drawing import drawing, text
from sojourn.bed.emulated import Rated
from sojourn.bed.facts import compare, digest
from sojourn.bed.model import checked
from sojourn.bed.state import Mark, Process
from sojourn.devices import MOST_PORTS
from sojourn.errors import RequestError

ALL = ("wire", "bridge", "bridge*2", "bridge*3", "bridge*4", "emulate", "emulate:longlabl")


def test_addresses_follow_the_plan() -> None:
    link = Topology.of(("wire", "bridge*2")).link("bridge*2")
    assert (link.a_dev, link.b_dev) == ("a-bridgex2", "b-bridgex2")
    assert (link.a_ip4, link.b_ip4) == ("10.77.3.1", "10.77.3.2")
    assert (link.a_ip6, link.b_ip6) == ("fd77:0:0:3::1", "fd77:0:0:3::2")
    assert (link.a_mac, link.b_mac) == ("02:77:00:00:03:01", "02:77:00:00:03:02")


def test_a_a_control_path_is_the_direct_link() -> None:
    topology = Topology.of(("bridge",))
    assert topology.link("a/a") is topology.link("direct")
    assert list(topology.paths) == ["direct", "bridge"]


def test_second_instance_is_a_link_of_the_same_kind() -> None:
    topology = Topology.of_spec(BedSpec(devices=("wire", "bridge"), near=2, twins=("direct", "bridge")))
    assert list(topology.paths) == ["direct", "wire", "bridge", "a/a", "bridge/2"]
    control, second = topology.link("a/a"), topology.link("bridge/2")
    assert (control.a_dev, len(control.cables), control.stations) == ("a-direct-t", 1, ())
    own = ["a-bridge-t", "d-bridge-t-1l", "d-bridge-t-1r", "b-bridge-t"]
    assert [port.dev for port in second.ports] == [*own, "a-bridge-t-2", "d-bridge-t-1l2"]
    assert control is not topology.link("direct")


def test_random_layout_changes_numbers_and_order() -> None:
    spec = BedSpec(devices=("wire", "bridge", "bridge*2"), twins=("direct", "bridge"))
    plain, *drawn = [Topology.of_spec(replace(spec, layout=seed)) for seed in (None, *range(20))]
    assert [link.path for link in plain.laid] == list(plain.paths)
    assert all(one.paths.keys() == plain.paths.keys() for one in drawn)
    assert len({one.link("bridge").a_ip4 for one in drawn}) > 10
    assert len({tuple(link.path for link in one.laid) for one in drawn}) > 10
    assert len({tuple(cable.left.dev for cable in one.cables) for one in drawn}) > 10
    assert drawn[3] == Topology.of_spec(replace(spec, layout=3))


def test_path_has_one_more_cable_than_hops() -> None:
    topology = Topology.of(ALL)
    assert [len(link.cables) for link in topology.links] == [1, 2, 2, 3, 4, 5, 2, 2]


@pytest.mark.parametrize(("near", "far", "bypass"), [(1, 1, False), (1, 1, True), (MOST_PORTS, MOST_PORTS, True)])
@pytest.mark.parametrize("links", [{}, dict.fromkeys(("direct", *ALL), LinkSpec((10_000_000,)))])
@pytest.mark.parametrize("drawn", [{}, {"twins": ("direct", "bridge*4"), "layout": 7, "addresses": 8}])
def test_names_indexes_and_macs_are_unique(
    near: int, far: int, bypass: bool, links: dict[str, LinkSpec], drawn: dict[str, Any]
) -> None:
    topology = Topology.of_spec(BedSpec(devices=ALL, near=near, far=far, bypass=bypass, links=links, **drawn))
    recorded = [one.name for one in topology.emulated]
    assert len(set(recorded)) == len(recorded)
    assert all(name.isalnum() and len(name) <= 16 for name in recorded)
    ends = [port for cable in topology.cables for port in (cable.left, cable.right)]
    bridges = [station for station in topology.stations if station.name]
    names = [port.dev for port in ends] + [station.name for station in bridges]
    assert len(names) == len(set(names))
    assert max(len(name or "") for name in names) <= 15
    indexes = [port.ifindex for port in ends] + [station.ifindex for station in bridges]
    assert len(indexes) == len(set(indexes))
    macs = [port.mac for port in ends] + [station.mac for station in bridges]
    assert len(macs) == len(set(macs))
    addresses = [
        address for link in topology.links for end in (*link.near, *link.far) for address in (end.ip4, end.ip6)
    ]
    assert len(addresses) == len(set(addresses))
    assert not {link.nobody_mac for link in topology.links} & set(macs)


def test_further_ends_follow_the_plan() -> None:
    link = Topology.of(("wire", "bridge*2"), near=3, far=2).link("bridge*2")
    assert link.near[0] == link.a_port
    assert link.far[0] == link.b_port
    third, second = link.near[2], link.far[1]
    assert (third.dev, third.mac) == ("a-bridgex2-3", "02:77:00:00:03:13")
    assert (third.ip4, third.ip6) == ("10.77.3.13", "fd77:0:0:3::13")
    assert (second.dev, second.mac) == ("b-bridgex2-2", "02:77:00:00:03:42")
    assert (second.ip4, second.ip6) == ("10.77.3.102", "fd77:0:0:3::42")
    first, last = link.stations
    assert [port.dev for port in first.lefts] == ["d-bridgex2-1l", "d-bridgex2-1l2", "d-bridgex2-1l3"]
    assert [port.dev for port in last.rights] == ["d-bridgex2-2r", "d-bridgex2-2r2"]
    assert not first.further_right
    assert not last.further_left


def test_only_bridges_have_further_ports_and_every_path_has_a_bypass() -> None:
    topology = Topology.of(("wire", "bridge"), near=4, far=3, bypass=True)
    assert [len(link.near) for link in topology.links] == [1, 1, 4, 1, 1, 1]
    assert list(topology.paths) == ["direct", "wire", "bridge", "direct/bypass", "wire/bypass", "bridge/bypass"]
    assert [link.is_bypass for link in topology.links] == [False] * 3 + [True] * 3
    assert topology.link("bridge/bypass").a_dev == "a-bridge-y"
    assert Topology.of(("wire", "bridge")).links[2] == Topology.of(("wire", "bridge"), bypass=True).links[2]
    with pytest.raises(RequestError, match="a bridge has from 1 to 17 ports on a side"):
        Topology.of(("bridge",), near=18)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("bridge*1", "device 'bridge*1': one bridge is written 'bridge'"),
        ("bridge*5", "device 'bridge*5': a cascade has from 2 to 4 bridges"),
        ("bridge*0", "device 'bridge*0': a cascade has from 2 to 4 bridges"),
        ("bridge:Slow", "device 'bridge:Slow': a label has 1 to 8 small letters and digits"),
        ("emulate:", "device 'emulate:': a label has 1 to 8 small letters and digits"),
        ("direct:x", "device 'direct:x': the direct link is there once, and has no label"),
        ("brigde", f"device 'brigde': expected {devices.what_there_is()} (did you mean bridge?)"),
        ("switch", f"device 'switch': expected {devices.what_there_is()}"),
        ("", f"device '': expected {devices.what_there_is()}"),
    ],
)
def test_an_unknown_device_is_refused_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(RequestError) as refusal:
        devices.parse(name)
    assert str(refusal.value) == sentence
    assert refusal.value.status == 2


def test_error_names_every_known_device() -> None:
    named = devices.what_there_is()
    assert named.startswith(
        "'direct', 'wire', 'xdp', 'bridge', 'bridge:qos', 'bridge:netfilter', 'bridge:rules*N' with N"
    )
    assert named.endswith("'router', 'router:nat', 'ovs' or 'bridge*N' with N from 2 to 4")


@pytest.mark.parametrize(
    "spec",
    [
        BedSpec(backend="rack"),
        BedSpec(mtu=1279),
        BedSpec(mtu=65536),
        BedSpec(devices=("bridge", "bridge")),
        BedSpec(device_cpu="loaded:0%"),
        BedSpec(device_cpu="loaded:96%"),
        BedSpec(device_cpu="loaded"),
        BedSpec(near=0),
        BedSpec(far=18),
        BedSpec(shaper="fq"),
        BedSpec(rate_bps=1_000_000, burst_bytes=1517),
    ],
)
def test_an_impossible_spec_is_refused(spec: BedSpec) -> None:
    with pytest.raises(RequestError):
        checked(spec)


@pytest.mark.parametrize("spec", [BedSpec("sim", prober_cpu=4096), BedSpec("sim", responder_cpu=-1)])
def test_missing_core_is_refused(spec: BedSpec) -> None:
    with pytest.raises(RequestError, match="the cores that may be used here are"), build_bed(spec, "unit-cores"):
        pass


def test_device_cpu_is_read() -> None:
    assert DeviceCpu.parse("loaded:50%") == DeviceCpu("loaded", 0.5)
    assert DeviceCpu.parse("own").kind == "own"


def test_core_mask_has_the_format_of_the_kernel() -> None:
    assert cpu_mask(0) == "00000001"
    assert cpu_mask(31) == "80000000"
    assert cpu_mask(33) == "00000002,00000000"
    assert cpu_mask(0, 1, 33) == "00000002,00000003"
    assert cpu_mask() == "00000000"


def test_drawing_of_a_bed_is_as_recorded() -> None:
    assert text(Topology.of(("wire", "bridge*2"))).splitlines() == [
        "host A (asks)         host D (devices under test)  host B (answers)      path",
        "10.77.1.1 a-direct   ───────────────────────────── b-direct 10.77.1.2    direct",
        "10.77.2.1 a-wire     ─────────[redirect]────────── b-wire 10.77.2.2      wire",
        "10.77.3.1 a-bridgex2 ─────[bridge]──[bridge]────── b-bridgex2 10.77.3.2  bridge*2",
    ]


def test_further_ends_and_bypasses_are_drawn() -> None:
    assert text(Topology.of(("bridge",), near=3, far=2, bypass=True)).splitlines() == [
        "host A (asks)          host D (devices under test)  host B (answers)        path",
        "10.77.1.1 a-direct    ───────────────────────────── b-direct 10.77.1.2      direct",
        "10.77.2.1 a-bridge    ──────────[bridge]─────────── b-bridge 10.77.2.2      bridge",
        "10.77.2.12 a-bridge-2 ─────────────┘└────────────── b-bridge-2 10.77.2.102",
        "10.77.2.13 a-bridge-3 ─────────────┘",
        "10.77.3.1 a-direct-y  ───────────────────────────── b-direct-y 10.77.3.2    direct/bypass",
        "10.77.4.1 a-bridge-y  ──────────[bridge]─────────── b-bridge-y 10.77.4.2    bridge/bypass",
    ]


MIXED = LinkSpec((100_000_000, 1_000_000_000, 100_000_000))


def test_devices_of_one_kind_are_distinguished_by_their_labels() -> None:
    topology = Topology.of(("bridge", "bridge:slow", "bridge*2:uplink", "emulate", "emulate:bare"))
    assert list(topology.paths) == ["direct", "bridge", "bridge:slow", "bridge*2:uplink", "emulate", "emulate:bare"]
    assert [link.a_dev for link in topology.links][2:] == ["a-slow", "a-uplink", "a-emulate", "a-bare"]
    assert [(one.name, one.path, one.label) for one in topology.emulated] == [
        ("emulate", "emulate", ""),
        ("bare", "emulate:bare", "bare"),
    ]
    for twice in (("bridge:slow", "wire:slow"), ("bridge:wire", "wire"), ("emulate", "emulate")):
        with pytest.raises(RequestError, match=r"labels that differ|asked for twice"):
            Topology.of(twice)


def test_a_rated_cable_has_an_emulator_in_it() -> None:
    topology = Topology.of(("bridge", "bridge*2"), near=3, far=2, links={"bridge*2": MIXED})
    assert not topology.link("bridge").emulated
    link = topology.link("bridge*2")
    assert len(link.cables) == 2 * len(link.stretches) == 6
    rates = {one.name: one.rated.rate_bps for one in link.emulated if one.rated}
    slow, fast = 100_000_000, 1_000_000_000
    assert rates == {
        "lbridgex21": slow,
        "lbridgex22": fast,
        "lbridgex23": slow,
        "lbridgex2n2": slow,
        "lbridgex2n3": slow,
        "lbridgex2f2": slow,
    }
    for one in link.emulated:  # frames that come in at one side of an emulator come from the cable on that side
        cables = [*link.cables, *link.further_cables]
        assert [cable.left.host for cable in cables if cable.right == one.left] in (["a"], ["d"])
        assert [cable.right.host for cable in cables if cable.left == one.right] in (["b"], ["d"])
    assert link.stretches[0].left == link.a_port
    assert link.stretches[-1].right == link.b_port


def test_rated_link_has_its_configuration_string_and_label() -> None:
    assert Rated(10_000_000, 5_000, 30_000).words == "rate 10000000bit/s overhead 24 queue 30000B delay 5000ns"
    assert Rated(None, 5_000).words == "delay 5000ns"
    assert Rated(10_000_000, 5_000).label == "10 Mbit/s, 5 us"
    with pytest.raises(RequestError, match="3 rates for 2 cables"):
        Topology.of(("bridge",), links={"bridge": MIXED})


def test_rated_links_are_drawn() -> None:
    topology = Topology.of(("bridge*2", "emulate"), links={"bridge*2": MIXED})
    shown = text(topology)
    assert "(100 Mbit/s)─[bridge]─(1000 Mbit/s)─[bridge]─(100 Mbit/s)" in shown
    assert "─[emulator]─" in shown
    labels = [link.get("label") for link in drawing(topology)["links"]]
    assert labels == [None, "100 Mbit/s", "1000 Mbit/s", "100 Mbit/s", None, None]


@pytest.mark.parametrize("ends", [1, 5])
def test_links_of_the_drawing_connect_its_nodes(ends: int) -> None:
    drawn = drawing(Topology.of(ALL, ends, ends, bypass=True))
    nodes = {node["id"] for node in drawn["nodes"]}
    assert len(nodes) == len(drawn["nodes"])
    assert {link[end] for link in drawn["links"] for end in ("from", "to")} == nodes


def test_process_mark_round_trips() -> None:
    mark = Mark.of_this_process("2026-11-20T101500Z-bridge-latency-3f9c")
    assert Mark.parse(str(mark)) == mark
    assert mark.controller == Process.of(os.getpid())
    assert mark.controller.is_alive()
    assert Mark.parse("something else") is None


@pytest.mark.parametrize(
    "text", [f"x@{'9' * 300}-1", f"x@1-{'9' * 5000}", "x\x1b[2J@1-2", "\N{REPLACEMENT CHARACTER}@1-2"]
)
def test_a_mark_that_no_bed_has_is_none(text: str) -> None:
    """Any user can give a process one: a number that has no end, or a run that changes root's terminal."""
    assert Mark.parse(text) is None


@pytest.mark.parametrize("run", ["", "../x", "a b", "-x", "x" * 101])
def test_a_run_id_that_cannot_be_a_file_name_is_refused(run: str) -> None:
    with pytest.raises(RequestError):
        Mark.of_this_process(run)


def test_reused_pid_with_another_start_time_is_another_process() -> None:
    now = Process.of(os.getpid())
    assert not Process(now.pid, now.started_ticks - 1).is_alive()


def test_differences_between_two_beds_are_listed() -> None:
    before = {"stable": {"kernel": {"release": "6.1"}, "cores": [0, 1], "gone": 1}}
    after = {"stable": {"kernel": {"release": "6.2"}, "cores": [0, 1], "new": 2}}
    changes = [(change.fact, change.before, change.after) for change in compare(before, after)]
    assert changes == [("gone", 1, None), ("kernel.release", "6.1", "6.2"), ("new", None, 2)]
    assert digest(before["stable"]) != digest(after["stable"])


def test_a_simulated_bed_builds_nothing_and_has_facts() -> None:
    with build_bed(BedSpec(backend="sim", devices=("bridge",)), "unit-sim") as bed:
        assert bed.backend.run("a", ["cat"], input="hello") == "hello"
        facts = bed.facts()
    assert facts["stable"]["hosts"] == {}
    assert facts["stable"]["machine"]["kernel"]["tick_hz"] in (100, 250, 300, 1000)
    assert facts["hash"] == digest(facts["stable"])


def test_settings_switched_by_a_study_are_not_differences_of_the_bed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for is_on, khz in ((False, 800_000), (True, 3_600_000)):
        monkeypatch.setattr(machine, "_number", lambda path, khz=khz: khz if path.name == "scaling_min_freq" else None)
        switches = dict.fromkeys(("idle", "rps", "frequency"), is_on)
        spec = BedSpec(backend="sim", devices=("bridge",), layout=1, addresses=1, switches=switches)
        with build_bed(spec, "unit-switched") as bed:
            found.append(bed.facts())
    assert compare(*found) == []
    assert found[0]["hash"] == found[1]["hash"]
    assert [one["layout"]["switches"]["frequency"] for one in found] == [False, True]


def test_addresses_are_randomised_independently_of_the_layout() -> None:
    spec = BedSpec(devices=("wire", "bridge"), twins=("direct", "bridge"), layout=1, addresses=1)
    first, same_layout, same_addresses = (
        Topology.of_spec(replace(spec, layout=layout, addresses=addresses))
        for layout, addresses in ((1, 1), (1, 2), (2, 1))
    )

    def laid(one: Topology) -> list[tuple[str, int]]:
        return [(port.dev, port.ifindex) for cable in one.cables for port in (cable.left, cable.right)]

    def addressed(one: Topology) -> list[tuple[str, str, str, str]]:
        return [(path, link.a_ip4, link.b_ip6, link.stations[0].left.mac if link.stations else link.a_mac)
                for path, link in one.paths.items()]  # fmt: skip

    assert laid(first) == laid(same_layout) != laid(same_addresses)
    assert addressed(first) == addressed(same_addresses) != addressed(same_layout)
