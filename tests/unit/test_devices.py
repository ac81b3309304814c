"""A device under test is one file: found beside ours, and no other file is edited for it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from sojourn import devices
from sojourn.bed import Topology
from sojourn.bed.drawing import drawing
from sojourn.errors import RequestError
from sojourn.plan import load_plan
from sojourn.report.palette import device_inks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HUB = """
from sojourn.devices import Ink, Mode, commands

DEVICE = Mode(
    name="hub",
    title="The old hub",
    plural="old hubs",
    box="a hub",
    ink=Ink("hub", "#111111", "#eeeeee", (1, 0), "cross"),
    inks={"*2": Ink("hub2", "#222222", "#dddddd", (2, 2), "cross")},
    longest=3,
    join=lambda box: commands("tc", f"qdisc add dev {box.left.dev} clsact"),
)
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with one file, as if it lay beside our own devices."""
    (tmp_path / "hub.py").write_text(HUB)
    monkeypatch.setattr(devices, "__path__", [*devices.__path__, str(tmp_path)])
    caches = (devices.modes, devices.parse)
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()
    sys.modules.pop("sojourn.devices.hub", None)


@pytest.mark.parametrize(
    ("name", "cascade", "variant_of", "bare"),
    [
        ("bridge", None, None, "bridge"),
        ("bridge*3", ("bridge", 3), None, "bridge"),
        ("bridge:up", None, None, "bridge"),
        ("bridge*2:up", None, None, "bridge"),
        ("bridge:tcpdump", None, "bridge", "bridge"),
        ("bridge:rules*200", None, "bridge", "bridge"),
        ("nowhere*2", ("nowhere", 2), None, "nowhere"),
        ("nowhere:else", None, "nowhere", "nowhere"),
        ("direct", None, None, "direct"),
    ],
)
def test_device_name_gives_cascade_variant_and_base_name(
    name: str, cascade: tuple[str, int] | None, variant_of: str | None, bare: str
) -> None:
    assert (devices.cascade(name), devices.variant_of(name), devices.bare(name)) == (cascade, variant_of, bare)


def test_reference_devices_have_a_fixed_order() -> None:
    assert devices.references() == ("bridge", "wire")


@pytest.mark.usefixtures("hub")
def test_a_file_alone_adds_a_device_everywhere(tmp_path: Path) -> None:
    plan = tmp_path / "mine.toml"
    plan.write_text('[study]\nname = "mine"\n[bed]\ndevices = ["bridge", "hub", "hub*2:old"]\n')
    assert load_plan(plan).bed.devices == ("bridge", "hub", "hub*2:old")
    topology = Topology.of(("bridge", "hub", "hub*2:old"))
    assert [len(link.cables) for link in topology.links] == [1, 2, 2, 3]
    assert [
        command.line for command in topology.link("hub").stations[0].mode.join(topology.link("hub").stations[0])
    ] == ["qdisc add dev d-hub-1l clsact"]
    assert [node["label"] for node in drawing(topology)["nodes"]][2:] == ["bridge", "a hub", "a hub", "a hub"]
    assert "[a hub]" in drawing(topology)["text"]
    assert devices.called("hub*2") == "A cascade of 2 old hubs"
    assert devices.called("hub:old") == 'The old hub "old"'
    inks = device_inks(range(1000))
    assert list(inks)[-2:] == ["hub", "hub*2"]
    assert inks["hub*2"].light == "#222222"
    rows = "'ovs', 'hub', 'bridge*N' with N from 2 to 4 or 'hub*N' with N from 2 to 3"
    with pytest.raises(RequestError, match=re.escape(rows)):
        devices.parse("switch")


def test_a_device_that_is_not_installed_here_keeps_its_bare_name() -> None:
    assert devices.known("hub") is None
    assert devices.called("hub") == "The device hub"
    assert devices.called("hub*2") == "A cascade of 2 hub"
    assert devices.rank("hub") > devices.rank("wire")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("direct", "The direct link"),
        ("bridge", "The Linux bridge"),
        ("bridge*2", "A cascade of 2 Linux bridges"),
        ("bridge*2:uplink", 'A cascade of 2 Linux bridges "uplink"'),
        ("emulate:zero", "The emulator with a delay of 0"),
        ("emulate:x", 'The emulator "x"'),
        ("bridge:qos", "The Linux bridge with HTB"),
        ("bridge:slow", 'The Linux bridge "slow"'),
        ("bridge:rules*200", "The Linux bridge with 200 rules"),
        ("bridge:tcpdump", "The Linux bridge with tcpdump"),
        ("bridge:bpf", "The Linux bridge with a BPF capture"),
        ("router:nat", "The Linux router with NAT"),
    ],
)
def test_every_device_has_a_name_for_sentences(name: str, title: str) -> None:
    assert devices.called(name) == title


def test_device_ranks_select_the_main_device_of_a_run() -> None:
    assert devices.rank("bridge:qos") > devices.rank("bridge") < devices.rank("bridge:rules*20")
    ranks = {name: devices.rank(name) for name in ("emulate:idle", "bridge", "bridge:slow", "bridge*2", "wire", "x")}
    assert ranks == {"emulate:idle": 3, "bridge": 2, "bridge:slow": 1, "bridge*2": 1, "wire": 0, "x": 1}


OTHERS = """
from sojourn.devices import Mode

FINE = Mode(name="patch", title="The patch panel", box="patch panel")
LONG = Mode(name="patchpanel", title="The patch panel", box="patch panel")
ROWS = Mode(name="patches", title="The patch panel", box="patch panel", longest=2)
NONE = "patch"
"""


def test_broken_mode_of_another_package_is_reported_and_affects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sojourn_test_others.py").write_text(OTHERS)
    about = tmp_path / "others-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    values = {name: f"sojourn_test_others:{name.upper()}" for name in ("fine", "long", "rows", "none", "gone")}
    values["absent"] = "sojourn_test_absent:DEVICE"
    lines = "".join(f"{name} = {value}\n" for name, value in values.items())
    (about / "entry_points.txt").write_text(f"[sojourn.devices]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    caches = (devices.modes, devices._of_others, devices.parse)
    for one in caches:
        one.cache_clear()
    try:
        assert devices.parse("patch").title == "The patch panel"
        assert [sentence.split()[3] for sentence in devices.left_out()] == ["long", "rows", "none", "gone", "absent"]
        assert "of sojourn.devices is left out: No module named 'sojourn_test_absent'" in devices.left_out()[-1]
        with pytest.raises(RequestError, match="of 10 characters, which interfaces bear, is longer than 8"):
            devices.parse("patchpanel")
    finally:
        for one in caches:
            one.cache_clear()
        sys.modules.pop("sojourn_test_others", None)


def test_interfaces_of_our_own_devices_have_names_that_the_kernel_takes() -> None:
    names = [mode.name + f"*{mode.most}" * bool(mode.counts) for mode in devices.modes().values() if mode.boxes]
    rows = [f"{mode.name}*{mode.longest}" for mode in devices.modes().values() if mode.longest > 1]
    for name in (*names, *rows):
        topology = Topology.of((name,), near=17, far=17, bypass=True)
        assert max(len(port.dev) for host in topology.hosts for port in topology.ports(host.name)) <= 15
        assert len(devices.parse(name).slug) <= devices.LONGEST_SLUG


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("bridge:rules", "expected 'bridge:rules*N' with N from 1 to 9999 rules"),
        ("bridge:rules*0", "expected 'bridge:rules*N' with N from 1 to 9999 rules"),
        ("bridge:rules*99999", "expected 'bridge:rules*N' with N from 1 to 9999 rules"),
        ("bridge:qos*2", "bridge:qos counts nothing, and stands in no row"),
        ("bridge*2*3", "expected"),
    ],
)
def test_impossible_variant_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=re.escape(sentence)):
        devices.parse(name)


def test_a_variant_is_a_mode_and_any_other_word_a_label() -> None:
    qos, slow, rules = map(devices.parse, ("bridge:qos", "bridge:slow", "bridge:rules*020"))
    assert (qos.kind, qos.label, qos.slug) == ("bridge:qos", "", "qos")
    assert (slow.kind, slow.label, slow.slug) == ("bridge", "slow", "slow")
    assert (rules.name, rules.count, rules.slug) == ("bridge:rules*20", 20, "rule20")
    with pytest.raises(RequestError, match="expected labels that differ"):
        Topology.of(("bridge:slow", "wire:slow"))


def test_devices_that_change_a_network_stack_have_their_own_namespace() -> None:
    topology = Topology.of(("bridge", "bridge:qos", "bridge:netfilter", "router", "router:nat"))
    assert topology.device_hosts == ("d", "d-netfilt", "d-router", "d-nat")
    assert {port.host for port in topology.link("bridge:qos").ports} == {"a", "d", "b"}
    assert {port.host for port in topology.link("router").ports} == {"a", "d-router", "b"}


def test_the_ends_of_a_routed_device_are_in_two_subnets() -> None:
    link = Topology.of(("wire", "router")).link("router")
    assert (link.a_ip4, link.b_ip4, link.a_ip6, link.b_ip6) == (
        "10.77.3.1", "10.78.3.2", "fd77:0:0:3::1", "fd78:0:0:3::2",
    )  # fmt: skip
    left, right = link.stations[0].sides or (None, None)
    assert left is not None
    assert right is not None
    assert (left.ip4, left.end_ip4, right.ip6, right.end_mac) == (
        "10.77.3.254",
        link.a_ip4,
        "fd78:0:0:3::fe",
        link.b_mac,
    )


def test_classes_of_linux_bridge_2003_equal_the_published_ones() -> None:
    """The paper's second port, whose qdisc has the handle 2."""
    station = Topology.of(("bridge:qos",)).link("bridge:qos").stations[0]
    lines = [command.line for command in station.mode.build(station) if command.tool == "tc"]
    assert [line.replace("d-qos-1r", "eth1") for line in lines[4:]] == [
        "qdisc add dev eth1 root handle 2:0 htb default 10",
        "class add dev eth1 parent 2:0 classid 2:2 htb rate 102400kbit ceil 102400kbit quantum 20000",
        "class add dev eth1 parent 2:2 classid 2:10 htb rate 102380kbit ceil 102400kbit prio 3 quantum 20000",
        "class add dev eth1 parent 2:2 classid 2:12 htb rate 20kbit ceil 25kbit prio 5 quantum 1500 cburst 1501b",
    ]


def test_device_alias_is_resolved_in_the_plan() -> None:
    assert load_plan("bridge-latency", sets=("devices=bridge:emulate",)).bed.devices == ("emulate:zero",)


@pytest.mark.parametrize("name", ["bridge:nat", "wire:qos", "bridge*2:router"])
def test_label_equal_to_a_mode_name_is_refused_in_plans(name: str) -> None:
    with pytest.raises(RequestError, match="a label that is no name of a mode"):
        load_plan("bridge-latency", sets=(f"devices={name}",))
    assert devices.parse(name).label, "runs that have it stay readable"
