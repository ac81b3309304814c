"""`sojourn bridge` over a made-up kernel: what `down` gives back, removes and leaves, and what counts as a use.

tests/net/test_host_bridge.py has the same commands over the real one.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.bed import host_bridge, host_commands, networkd, port_uses
from sojourn.bed.look import PEERS
from sojourn.errors import MachineError, RequestError
from sojourn.labs import uplink
from tests.unit.in_process import sojourn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "br-unit"


class Kernel:
    """Interfaces as `ip` shows and changes them; a bond takes a port only while it is down, and sets it up."""

    def __init__(self) -> None:
        self.links: dict[str, dict[str, Any]] = {}
        self.addresses: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.queues: dict[str, str] = {}
        """The root qdisc of each port: kind and handle."""
        self.fails: Callable[[str], bool] = lambda _: False
        for name in ("eth1", "eth2"):
            self.add(name)

    def add(self, name: str, kind: str = "", **more: Any) -> None:
        info = {"linkinfo": {"info_kind": kind}} if kind else {}
        self.links[name] = {"ifname": name, "flags": ["UP"], "address": "52:54:00:00:00:01", **info, **more}

    def run(self, argv: list[str], _: str = "") -> str:
        line = " ".join(argv)
        self.asked.append(line)
        if self.fails(line):
            raise MachineError(f"'{line}' failed")
        if argv[:2] == ["tc", "qdisc"]:
            return self._queue(line)
        if re.fullmatch(r"ip -json (-details )?link", line):
            return json.dumps(list(self.links.values()))
        if found := re.fullmatch(r"ip -json address show dev (\S+)", line):
            return json.dumps([{"addr_info": self.addresses.get(found[1], [])}])
        if found := re.match(r"ip link add name (\S+) (?:address (\S+) )?type bridge", line):
            self.add(found[1], "bridge", **({"address": found[2]} if found[2] else {}))
        elif found := re.fullmatch(r"ip link del dev (\S+)", line):
            del self.links[found[1]]
            for link in self.links.values():
                if link.get("master") == found[1]:
                    del link["master"]
        elif found := re.fullmatch(r"ip link set dev (\S+) (.*)", line):
            self._set(line, self.links[found[1]], found[2].split())
        return "[]" if "-json" in argv else ""

    def _queue(self, line: str) -> str:
        if found := re.fullmatch(r"tc qdisc show dev (\S+)", line):
            return f"qdisc {self.queues[found[1]]} root refcnt 2 default 1\n" if found[1] in self.queues else ""
        if found := re.match(r"tc qdisc add dev (\S+) root handle (\d+:)0 (\S+)", line):
            self.queues[found[1]] = f"{found[3]} {found[2]}"
        elif found := re.fullmatch(r"tc qdisc del dev (\S+) root", line):
            del self.queues[found[1]]
        return ""

    def _set(self, line: str, link: dict[str, Any], words: list[str]) -> None:
        if "nomaster" in words:
            link.pop("master", None)
        if "master" in words:
            master = self.links[words[words.index("master") + 1]]
            link.pop("master", None)
            if master["linkinfo"]["info_kind"] == "bond" and "UP" in link["flags"]:
                raise MachineError(f"'{line}' failed: Error: Device can not be enslaved while up.")
            if master.get("is_full"):
                raise MachineError(f"'{line}' failed: it takes nobody")
            if master["linkinfo"]["info_kind"] == "bond":
                link["flags"] = ["UP"]
            link["master"] = master["ifname"]
        if "up" in words or "down" in words:
            link["flags"] = ["UP"] if "up" in words else []

    def ports(self) -> dict[str, tuple[str | None, bool]]:
        return {name: (self.links[name].get("master"), "UP" in self.links[name]["flags"]) for name in ("eth1", "eth2")}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    (tmp_path / "states").mkdir()
    monkeypatch.setattr(host_bridge, "STATES", tmp_path / "states")
    monkeypatch.setattr(networkd, "FOLDER", tmp_path / "networkd")
    monkeypatch.setattr(host_bridge, "_require_root", lambda: None)
    monkeypatch.setattr(host_bridge, "require_tools", lambda _: None)
    monkeypatch.setattr(host_commands, "run", made.run)
    monkeypatch.setattr(port_uses, "_session_port", lambda: None)
    return made


def up(mode: str = "bridge", *, persist: bool = False) -> None:
    host_bridge.up(NAME, ("eth1", "eth2"), mode, take_over=True, persist=persist)


def states() -> list[Path]:
    return list(host_bridge.STATES.glob("*.json"))


@pytest.mark.parametrize("mode", ["bridge", "qos"])
@pytest.mark.parametrize("was_up", [False, True])
def test_ports_are_given_back_to_a_bond_and_to_a_bridge(kernel: Kernel, mode: str, *, was_up: bool) -> None:
    kernel.add("bond0", "bond")
    kernel.add("br0", "bridge")
    for port, master in (("eth1", "bond0"), ("eth2", "br0")):
        kernel.links[port] |= {"master": master, "flags": ["UP"] * was_up}
    before = kernel.ports()
    up(mode)
    assert kernel.ports() == {"eth1": (NAME, True), "eth2": (NAME, True)}
    assert host_bridge.down(NAME) == [f"Removed {NAME}.", "eth1 is as it was.", "eth2 is as it was."]
    assert kernel.ports() == before
    assert states() == []


def test_port_that_cannot_be_given_back_keeps_the_bridge_for_another_down(kernel: Kernel) -> None:
    kernel.add("bond0", "bond")
    kernel.links["eth1"]["master"] = "bond0"
    before = kernel.ports()
    up()
    kernel.links["bond0"]["is_full"] = True
    refused = sojourn("bridge", "down")
    told = f"; {NAME} stays until every port is given back: fix that, then `sojourn bridge down {NAME}`\n"
    assert refused.returncode == 3
    assert refused.stderr.startswith("sojourn: eth1 is not as it was: 'ip link set dev eth1 master bond0' failed")
    assert refused.stderr.endswith(told)
    assert len(states()) == 1
    kernel.links["bond0"]["is_full"] = False
    assert f"Removed {NAME}." in host_bridge.down(None)
    assert kernel.ports() == before
    assert states() == []


def test_failed_up_says_which_port_it_could_not_give_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.add("bond0", "bond", is_full=True)
    kernel.links["eth1"]["master"] = "bond0"

    def run(argv: list[str], text: str = "") -> str:
        if argv[-3:] == ["dev", NAME, "up"]:
            raise MachineError("it cannot be set up")
        return kernel.run(argv, text)

    monkeypatch.setattr(host_commands, "run", run)
    with pytest.raises(MachineError, match="it cannot be set up; eth1 is not as it was"):
        up()
    assert len(states()) == 1


def test_master_that_is_gone_is_named(kernel: Kernel) -> None:
    kernel.add("br0", "bridge")
    kernel.links["eth1"]["master"] = "br0"
    up()
    del kernel.links["br0"]
    assert host_bridge.down(NAME)[1] == "eth1 belongs to nothing: br0 is gone."
    assert states() == []


def test_bridge_has_an_address_of_its_own_by_which_it_is_known(kernel: Kernel) -> None:
    up(persist=True)
    first = kernel.links[NAME]["address"]
    assert re.fullmatch(r"0a(:[0-9a-f]{2}){5}", first)
    assert json.loads(states()[0].read_text())["mac"] == first
    assert f"MACAddress={first}\n" in (networkd.FOLDER / f"60-sojourn-{NAME}.netdev").read_text()
    host_bridge.down(NAME)
    up()
    assert kernel.links[NAME]["address"] != first


@pytest.mark.parametrize("kind", ["bridge", "vlan", ""])
def test_interface_that_has_taken_the_name_since_is_left_alone(kernel: Kernel, kind: str) -> None:
    """Somebody removes the bridge, and makes something else of that name with the same ports."""
    kernel.links["eth2"]["flags"] = []
    up("qos")
    mac = kernel.links[NAME]["address"]
    kernel.run(["ip", "link", "del", "dev", NAME])
    kernel.add(NAME, kind)
    kernel.links["eth2"]["master"] = NAME
    before = kernel.ports()
    asked = len(kernel.asked)
    refused = sojourn("bridge", "down")
    again = f", or give it that one's address (ip link set dev {NAME} address {mac})" if kind == "bridge" else ""
    mend = f"rename or remove it{again}, then `sojourn bridge down {NAME}` restores the ports"
    assert (refused.returncode, refused.stderr) == (3, f"sojourn: {NAME} is not the bridge that was made: {mend}\n")
    assert NAME in kernel.links
    assert kernel.ports() == before
    assert all("-json" in line for line in kernel.asked[asked:]), "nothing was changed"
    assert len(states()) == 1
    del kernel.links[NAME], kernel.links["eth2"]["master"]
    assert host_bridge.down(NAME) == [f"{NAME} was not there.", "eth1 is as it was.", "eth2 is as it was."]


def test_bridge_with_another_address_is_removed_once_it_has_its_own_again(kernel: Kernel) -> None:
    """Its ports stayed in it, and no `down` was possible any more."""
    before = kernel.ports()
    up()
    mac, kernel.links[NAME]["address"] = kernel.links[NAME]["address"], "52:54:00:00:00:99"
    with pytest.raises(MachineError, match="is not the bridge that was made"):
        host_bridge.down(NAME)
    kernel.links[NAME]["address"] = mac
    assert host_bridge.down(NAME)[0] == f"Removed {NAME}."
    assert (kernel.ports(), states()) == (before, [])


@pytest.mark.parametrize("mode", ["qos", "netfilter"])
def test_ports_of_a_bridge_that_somebody_removed_lose_its_queues_and_are_as_they_were(
    kernel: Kernel, mode: str
) -> None:
    """The queues stayed, and the port that had been down was up."""
    kernel.add("br0", "bridge")
    kernel.links["eth1"]["master"] = "br0"
    kernel.links["eth2"]["flags"] = []
    before = kernel.ports()
    up(mode)
    assert len(kernel.queues) == 2
    kernel.run(["ip", "link", "del", "dev", NAME])
    assert host_bridge.down(NAME) == [f"{NAME} was not there.", "eth1 is as it was.", "eth2 is as it was."]
    assert (kernel.ports(), kernel.queues, states()) == (before, {}, [])


def test_ports_that_are_used_otherwise_by_now_are_left_alone(kernel: Kernel) -> None:
    """One is in another bridge, with a queue of that; one in none, and has ours."""
    kernel.links["eth2"]["flags"] = []
    up("qos")
    kernel.add("br1", "bridge")
    kernel.links["eth1"]["master"], kernel.queues["eth1"] = "br1", "hfsc 1:"
    del kernel.links["eth2"]["master"]
    assert host_bridge.down(NAME) == [
        f"Removed {NAME}.",
        f"eth1 is no longer in {NAME}: it was left as it is.",
        f"eth2 is no longer in {NAME}: its queue was removed.",
    ]
    assert kernel.ports() == {"eth1": ("br1", True), "eth2": (None, True)}
    assert kernel.queues == {"eth1": "hfsc 1:"}


def test_queues_that_are_not_ours_stay(kernel: Kernel) -> None:
    up("qos")
    kernel.queues |= {"eth1": "htb 7:", "eth2": "hfsc 1:"}
    kernel.run(["ip", "link", "del", "dev", NAME])
    assert host_bridge.down(NAME) == [f"{NAME} was not there.", "eth1 is as it was.", "eth2 is as it was."]
    assert kernel.queues == {"eth1": "htb 7:", "eth2": "hfsc 1:"}


def test_port_that_leaves_its_bridge_and_cannot_join_is_given_back_by_a_failed_up(kernel: Kernel) -> None:
    """The kernel lets it go before it refuses it."""
    kernel.add("br0", "bridge")
    kernel.links["eth2"] |= {"master": "br0", "flags": []}
    before = kernel.ports()

    def fails(line: str) -> bool:
        if is_join := line == f"ip link set dev eth2 master {NAME}":
            kernel.links["eth2"].pop("master", None)
        return is_join

    kernel.fails = fails
    with pytest.raises(MachineError, match=f"^'ip link set dev eth2 master {NAME}' failed$"):
        up("qos")
    assert (kernel.ports(), kernel.queues, states()) == (before, {}, [])


def test_port_is_set_up_only_after_it_has_joined(kernel: Kernel) -> None:
    """One command for both sets it up first on Linux before 6.1, and a refused port stayed up."""
    kernel.links["eth2"]["flags"] = []
    up()
    steps = [line for line in kernel.asked if line.startswith("ip link set dev eth2 ")]
    assert steps == [f"ip link set dev eth2 {step}" for step in (f"master {NAME}", "up")]


def test_second_down_has_only_the_ports_that_are_left(kernel: Kernel) -> None:
    """It said of the first one that it is no longer in the bridge, and the other one was down in it."""
    kernel.add("bond0", "bond")
    kernel.links["eth2"]["master"] = "bond0"
    up()
    kernel.links["bond0"]["is_full"] = True
    with pytest.raises(MachineError, match="eth2 is not as it was"):
        host_bridge.down(NAME)
    assert kernel.ports() == {"eth1": (None, True), "eth2": (NAME, True)}
    kernel.links["eth1"]["flags"] = []  # its owner
    kernel.links["bond0"]["is_full"] = False
    assert host_bridge.down(NAME) == [f"Removed {NAME}.", "eth2 is as it was."]
    assert kernel.ports() == {"eth1": (None, False), "eth2": ("bond0", True)}


def test_damaged_state_file_names_no_address(kernel: Kernel) -> None:
    up()
    assert kernel.links[NAME]["address"] == host_bridge._mac_kept(NAME)
    for octets in ("[]", "{", '{"mac": 5}'):
        host_bridge._state_of(NAME).write_text(octets)
        assert host_bridge._mac_kept(NAME) is None


def test_port_with_a_queue_of_its_own_is_refused(kernel: Kernel) -> None:
    """`tc` prints no valid JSON of hfsc."""
    kernel.queues["eth2"] = "hfsc 7:"
    with pytest.raises(RequestError, match=r"^eth2 has a queueing discipline of its own \(hfsc 7:\): tc qdisc del dev"):
        up("qos")


def test_state_file_of_an_earlier_version_removes_the_bridge_of_its_name(kernel: Kernel) -> None:
    up()
    text = json.loads(states()[0].read_text())
    del text["mac"]
    states()[0].write_text(json.dumps(text))
    assert host_bridge.down(NAME)[0] == f"Removed {NAME}."
    assert NAME not in kernel.links


def vlan(kernel: Kernel) -> None:
    kernel.add("eth2.100", "vlan", link="eth2")


def macvlan(kernel: Kernel) -> None:
    kernel.add("above", "macvlan", link="eth2")


def zeroconf(kernel: Kernel) -> None:
    kernel.addresses["eth2"] = [{"family": "inet", "local": "169.254.7.7", "prefixlen": 16, "scope": "link"}]


@pytest.mark.parametrize(
    ("use", "sentence"),
    [(vlan, "has eth2.100 on it"), (macvlan, "has above on it"), (zeroconf, "has the address 169.254.7.7/16")],
)
def test_interfaces_on_a_port_and_addresses_of_its_link_are_uses(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, use: Callable[[Kernel], None], sentence: str
) -> None:
    use(kernel)
    with pytest.raises(RequestError, match=f"eth2 {sentence}: this machine uses it; --take-over"):
        host_bridge.up(NAME, ("eth1", "eth2"), "bridge", take_over=False, persist=False)
    kernel.links["eth2"]["link_type"] = "ether"
    monkeypatch.setattr(uplink, "links_here", lambda: list(kernel.links.values()))
    with pytest.raises(RequestError, match=f"eth2 {sentence}: this machine uses it; --take-over"):
        uplink.require_free("eth2", take_over=False)
    assert uplink.require_free("eth2", take_over=True)["ifname"] == "eth2"
    up()


def test_other_end_of_a_pair_and_a_link_local_address_are_no_uses(kernel: Kernel) -> None:
    kernel.addresses["eth2"] = [{"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]
    for number, kind in enumerate(sorted(PEERS)):
        kernel.add(f"peer{number}", kind, link="eth2")
    assert port_uses.in_use("eth2", kernel.links) == []


def test_ssh_session_over_a_link_local_address_is_at_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], _needed: str) -> list[dict[str, Any]]:
        if "%" in argv[-1]:
            raise MachineError(f"an inet prefix is expected rather than {argv[-1]}")
        return [{"dev": "eth9"}]

    monkeypatch.setattr(host_commands, "tables", run)
    assert port_uses._port_towards("fe80::1%eth1") == "eth1"
    assert port_uses._port_towards("192.0.2.1") == "eth9"
