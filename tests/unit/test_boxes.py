"""Boxes of the user's own in plans and on the command line: which device they become, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from sojourn import devices
from sojourn.bed import BedSpec, BoxSpec, Topology
from sojourn.bed.model import checked
from sojourn.errors import RequestError
from sojourn.plan import effective_toml, load_plan
from sojourn.plan.source import Given

if TYPE_CHECKING:
    from pathlib import Path

PLAN = '[study]\nname = "mine"\n[bed]\n{bed}\n'


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that may be run."""
    path = tmp_path / "my-Box.v2.sh"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_program_given_as_device_replaces_the_devices_of_a_study(program: Path) -> None:
    plan = load_plan("bridge-latency", devices=[f"{program} 20 'a b'"])
    assert plan.bed.devices == ("wire", "box:my-box-v2")
    box = plan.bed.boxes["box:my-box-v2"]
    assert (box.up, box.down, box.within_ns, box.routed) == (f"{program} 20 'a b'", None, 30_000_000_000, None)
    assert plan.asked == (f"--device {program} 20 'a b'",)
    assert devices.called("box:my-box-v2") == 'The box "my-box-v2"'
    assert devices.rank("box:my-box-v2") > devices.rank("bridge:qos") > 0


def test_modes_and_programs_can_be_combined(program: Path) -> None:
    plan = load_plan("bridge-latency", devices=["bridge", f"{program} 1", f"{program} 2", "bridge:rules*20"])
    assert plan.bed.devices == ("wire", "bridge", "box:my-box-v2", "box:my-box2", "bridge:rules*20")
    slugs = [link.slug for link in Topology.of(plan.bed.devices).links]
    assert slugs == ["direct", "wire", "bridge", "myboxv2", "mybox2", "rule20"]


def test_program_has_the_label_given_by_the_user(program: Path) -> None:
    """Two programs of one name, and one with two rule sets, are told apart by words that the reader knows."""
    plan = load_plan("bridge-latency", devices=[f"old-rules={program} old.nft", f"new={program} n=2", "bridge"])
    assert plan.bed.devices == ("wire", "box:old-rules", "box:new", "bridge")
    assert [box.up for box in plan.bed.boxes.values()] == [f"{program} old.nft", f"{program} n=2"]
    assert devices.called("box:old-rules") == 'The box "old-rules"'
    assert load_plan("bridge-latency", devices=[f"{program} n=2"]).bed.devices == ("wire", "box:my-box-v2")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            ["A={program}"],
            "expected LABEL=PROGRAM, and 'A' is no label: a label has 1 to 24 small letters, digits and dashes",
        ),
        (["a=bridge"], "expected LABEL=PROGRAM, and bridge is a device's name, not a program"),
        (["a="], 'bed.boxes.a.up = "": expected a program of yours'),
        (["a={program}", "a={program} 2"], "two boxes have the label a"),
        (["bridge={program}", "bridge"], "those of bridge have the same"),
        (["firewall-old={program}", "firewall-new={program}"], "those of box:firewall-new have the same"),
    ],
)
def test_impossible_label_is_refused(asked: list[str], sentence: str, program: Path) -> None:
    with pytest.raises(RequestError, match=re.escape(sentence)) as refusal:
        load_plan("bridge-latency", devices=[one.format(program=program) for one in asked])
    assert refusal.value.status == 2


def test_box_on_the_command_line_inherits_nothing_from_a_box_in_the_plan(program: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        PLAN.format(bed='devices = ["box:rules"]\nboxes.rules = { up = "./my-Box.v2.sh", down = "./my-Box.v2.sh off" }')
    )
    assert load_plan(own).bed.boxes["box:rules"].down == f"{program} off"
    assert load_plan(own, devices=[f"rules={program} 9"]).bed.boxes["box:rules"].down is None


def test_plan_names_a_box_in_short_form_or_by_section(program: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.toml"
    short.write_text(PLAN.format(bed='device = { up = "./my-Box.v2.sh", down = "./my-Box.v2.sh off", within = "5s" }'))
    plan = load_plan(short)
    assert plan.bed.devices == ("wire", "box:my-box-v2")
    assert plan.bed.boxes["box:my-box-v2"].down == f"{program} off"
    long = tmp_path / "long.toml"
    long.write_text(PLAN.format(bed=f'devices = ["box:x"]\n[bed.boxes.x]\nup = "{program.name}"\nrouted = true'))
    assert load_plan(long).bed.boxes["box:x"].up == str(program)
    for one in (short, long):
        again = tmp_path / "again.toml"
        again.write_text(effective_toml(load_plan(one)))
        assert load_plan(again).bed == load_plan(one).bed


def test_device_found_to_route_makes_streams_use_udp(program: Path) -> None:
    more = {"bed.boxes.my-box-v2.routed": Given(value=True, where="as was tried")}
    assert load_plan("throughput", devices=[str(program)]).stream.engine == ("auto",)
    assert load_plan("throughput", devices=[str(program)], more=more).stream.engine == ("udp",)


@pytest.mark.parametrize(
    ("bed", "sentence"),
    [
        ('devices = ["box:x"]', "expected a section [bed.boxes.x] with up = a program of yours"),
        ('devices = ["box"]', "expected a section [bed.boxes.LABEL]"),
        ('device = { up = "./absent" }', 'absent": expected a program that is there'),
        ('device = { up = "./plain" }', "expected a program that may be run: chmod +x"),
        ('device = { up = "" }', "expected a device's name, or a program of yours"),
        ('device = { up = "./my-Box.v2.sh \'" }', "a quotation mark is not closed"),
        ('device = { upp = "./my-Box.v2.sh" }', "bed.device"),
        ('device = { up = "./my-Box.v2.sh", dwn = "x" }', "unknown key bed.device.dwn: expected down"),
        ('device = { up = "./my-Box.v2.sh", within = "5" }', "bed.boxes.my-box-v2.within"),
        ('devices = ["bridge"]\n[bed.boxes.x]\nup = "./my-Box.v2.sh"', 'expected the device "box:x" in bed.devices'),
        ('devices = ["box:x"]\n[bed.boxes.x]\ndown = "true"', "the key bed.boxes.x.up is missing"),
        ('devices = ["box:x"]\n[bed.boxes.X]\nup = "./my-Box.v2.sh"', "unknown key bed.boxes.X.up"),
    ],
)
@pytest.mark.usefixtures("program")
def test_impossible_box_is_refused(bed: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(bed=bed))
    with pytest.raises(RequestError, match=re.escape(sentence)) as refusal:
        load_plan(plan)
    assert refusal.value.status == 2


def test_method_without_devices_refuses_a_device(program: Path) -> None:
    with pytest.raises(RequestError, match=r"bed\.devices has no meaning for study\.method = tcp"):
        load_plan("tcplog-cost", devices=[str(program)])


def test_link_rates_of_replaced_paths_are_removed(program: Path) -> None:
    plan = load_plan("rated-throughput", devices=[str(program)])
    assert "bridge" not in plan.bed.links


def test_bed_requires_the_box_program_and_routes_if_configured() -> None:
    with pytest.raises(RequestError, match="expected a section"):
        checked(BedSpec(devices=("box:x",)))
    for routed, address in ((None, "10.77.2.2"), (False, "10.77.2.2"), (True, "10.78.2.2")):
        spec = BedSpec(devices=("box:x",), boxes={"box:x": BoxSpec("/x", routed=routed)})
        assert Topology.of_spec(spec).link("box:x").b_ip4 == address


def test_program_on_the_command_line_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a plan of another folder it was looked for there, and another program of that name was run."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "box.sh").write_text("#!/bin/sh\n")
        (folder / "box.sh").chmod(0o755)
    plan = there / "mine.toml"
    plan.write_text("[study]\nname = 'mine'\nmethod = 'pairs'\n[bed]\ndevices = ['bridge']\n")
    monkeypatch.chdir(here)
    (box,) = load_plan(plan, devices=["./box.sh"]).bed.boxes.values()
    assert box.up == str(here / "box.sh")
