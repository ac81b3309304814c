"""`sojourn bridge` on ports of a network namespace: refused where the machine uses them, as they were afterwards."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.bed import host_bridge, networkd
from tests.net.busy_machine import await_that
from tests.net.here import sojourn_here
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOJOURN = str(Path(sys.executable).with_name("sojourn"))


class Machine:
    """A network namespace with ports p1 and p2, whose other ends q1 and q2 are in namespaces of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "states").mkdir()
        (folder / "networkd").mkdir()
        self.keepers = [subprocess.Popen(["unshare", "--net", "sleep", "300"]) for _ in range(3)]
        self.here, *self.ends = self.keepers
        for keeper in self.keepers:
            while Path(f"/proc/{keeper.pid}/comm").read_text() != "sleep\n":
                pass
        for number, end in enumerate(self.ends, start=1):
            self.run("ip", "link", "add", f"p{number}", "type", "veth", "peer", f"q{number}", "netns", str(end.pid))
            self.run("ip", "link", "set", f"q{number}", "up", at=end)
            self.run("ip", "address", "add", f"192.0.2.{number}/24", "dev", f"q{number}", at=end)

    def run(self, *argv: str, at: subprocess.Popen[bytes] | None = None) -> str:
        inside = ["nsenter", f"--net=/proc/{(at or self.here).pid}/ns/net"]
        return subprocess.run([*inside, *argv], capture_output=True, text=True, check=True).stdout

    def sojourn(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command line, with folders of our own for its states and for systemd-networkd."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host_bridge, "STATES", self.folder / "states")
            patch.setattr(networkd, "FOLDER", self.folder / "networkd")
            net = Path(f"/proc/{self.here.pid}/ns/net")
            return sojourn_here("bridge", *words, net=net, seconds=60)

    def begun(self, *words: str) -> subprocess.Popen[bytes]:
        """The command line as a process of its own, which can be killed."""
        patched = f"h.STATES, n.FOLDER = Path({str(self.folder)!r}) / 'states', Path({str(self.folder)!r}) / 'networkd'"
        code = (
            "import sys; from pathlib import Path; from sojourn.bed import host_bridge as h, networkd as n; "
            f"{patched}; from sojourn.cli import program; sys.argv[0] = 'sojourn'; program()"
        )
        argv = ["nsenter", f"--net=/proc/{self.here.pid}/ns/net", sys.executable, "-c", code, "bridge", *words]
        return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def state(self) -> tuple[object, ...]:
        """What `down` has to bring back."""
        links = json.loads(self.run("ip", "-json", "link"))
        kept = {link["ifname"]: (link.get("master"), "UP" in link["flags"]) for link in links}
        queues = [line for line in self.run("tc", "qdisc", "show").splitlines() if " 0: " not in line]  # the kernel's
        shown = json.loads(self.run("ip", "-json", "address", "show", "scope", "global"))
        addresses = [(one["ifname"], one["addr_info"]) for one in shown]
        return (
            kept,
            queues,
            str(addresses),
            self.run("nft", "list", "ruleset"),
            sorted((self.folder / "networkd").iterdir()),
        )

    def pings(self) -> bool:
        inside = ["nsenter", f"--net=/proc/{self.ends[0].pid}/ns/net"]
        done = subprocess.run(
            [*inside, "ping", "-c", "3", "-i", "0.05", "-W", "5", "192.0.2.2"], capture_output=True, check=False
        )
        return done.returncode == 0


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    one = Machine(tmp_path)
    yield one
    for keeper in one.keepers:
        keeper.kill()
        keeper.wait()


@pytest.mark.parametrize("mode", ["bridge", "qos", "netfilter"])
def test_bridge_forwards_is_shown_and_restores_its_ports(machine: Machine, mode: str) -> None:
    before = machine.state()
    assert not machine.pings()
    up = machine.sojourn("up", "p1", "p2", "--mode", mode)
    assert up.returncode == 0, up.stderr
    assert up.stdout.startswith(f"br-sojourn bridges p1 and p2 (mode {mode}): ")
    assert machine.pings()
    (shown,) = printed("bridge-status", machine.sojourn("status", "--json").stdout)
    assert (shown["name"], shown["mode"], shown["there"]) == ("br-sojourn", mode, True)
    assert [(port["port"], port["state"]) for port in shown["now"]] == [("p1", "forwarding"), ("p2", "forwarding")]
    assert "p2: forwarding, " in machine.sojourn("status").stdout
    if mode != "bridge":
        assert "htb" in machine.run("tc", "qdisc", "show", "dev", "p2")
    if mode == "netfilter":
        assert "table" in machine.run("nft", "list", "ruleset")
        assert "Connections are tracked" in up.stdout
    assert "inet" not in machine.run("ip", "address", "show", "dev", "br-sojourn")
    down = machine.sojourn("down")
    assert down.returncode == 0, down.stderr
    assert down.stdout.splitlines() == ["Removed br-sojourn.", "p1 is as it was.", "p2 is as it was."]
    assert machine.state() == before
    assert machine.sojourn("status").stdout == "There is no bridge of `sojourn bridge` here.\n"
    again = machine.sojourn("down")
    assert (again.returncode, again.stderr) == (2, "sojourn: there is no bridge of `sojourn bridge` here\n")


@pytest.mark.parametrize("mode", ["bridge", "qos", "netfilter"])
def test_bridge_needs_no_right_that_its_table_does_not_have(machine: Machine, mode: str) -> None:
    """The program gives up the others before it begins; `sojourn_here`, in the tests' own process, does not."""
    before = machine.state()
    persist = [] if mode == "netfilter" else ["--persist"]
    assert machine.begun("up", "p1", "p2", "--mode", mode, *persist).wait(60) == 0
    assert machine.pings()
    assert machine.begun("status").wait(60) == 0
    assert machine.begun("down").wait(60) == 0
    assert machine.state() == before


def test_up_and_down_report_in_json(machine: Machine) -> None:
    made = machine.sojourn("up", "p1", "p2", "--json")
    assert made.returncode == 0, made.stderr
    up = printed("bridge-up", made.stdout)
    assert [port["name"] for port in up["ports"]] == ["p1", "p2"]
    down = printed("bridge-down", machine.sojourn("down", "--json").stdout)
    assert down["done"][0] == "Removed br-sojourn."


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (["ip address add 198.51.100.1/24 dev p2"], "p2 has the address 198.51.100.1/24"),
        (["ip link set p2 up", "ip route add 203.0.113.0/24 dev p2"], "p2 has a route to 203.0.113.0/24"),
        (["ip link add other type bridge", "ip link set p2 master other"], "p2 belongs to other"),
    ],
)
def test_a_port_that_the_machine_uses_is_refused_unless_it_is_taken_over(
    machine: Machine, use: list[str], sentence: str
) -> None:
    for line in use:
        machine.run(*line.split())
    before = machine.state()
    refused = machine.sojourn("up", "p1", "p2")
    told = f"sojourn: {sentence}: this machine uses it; --take-over bridges it all the same\n"
    assert (refused.returncode, refused.stderr) == (2, told)
    assert machine.state() == before
    assert machine.sojourn("up", "p1", "p2", "--take-over").returncode == 0
    assert machine.pings()
    assert machine.sojourn("down").returncode == 0
    assert machine.state() == before


@pytest.mark.parametrize("command", ['exec "$@"', 'env -u SSH_CONNECTION "$@"; exit'], ids=["here", "above"])
def test_the_port_of_the_ssh_session_is_refused(machine: Machine, command: str) -> None:
    """The session is named in the environment of the process, or, below sudo, of one above it alone."""
    machine.run("ip", "link", "set", "p1", "up")
    machine.run("ip", "route", "add", "203.0.113.7/32", "dev", "p1")
    session = ["env", "SSH_CONNECTION=203.0.113.7 55555 198.51.100.1 22", "sh", "-c", command, "sh"]
    argv = ["nsenter", f"--net=/proc/{machine.here.pid}/ns/net", *session, SOJOURN, "bridge", "up", "p1", "p2"]
    refused = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("sojourn: p1 carries the SSH session that this runs in: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["p1", "p1"], "p1 twice: a bridge joins two ports"),
        (["p1", "p3"], "there is no port p3: this machine has p1, p2"),
        (["p1", "lo"], "lo is the loopback interface"),
        (["p1", "p2", "--mode", "ipp2p"], "--mode ipp2p: expected bridge, qos or netfilter"),
        (["p1", "p2", "--name", "p1"], "p1 is there already"),
        (["p1", "p2", "--name", "a/b"], "--name a/b: expected up to 15 letters"),
        (
            ["p1", "p2", "--mode", "netfilter", "--persist"],
            "--persist with --mode netfilter: systemd-networkd has no rules",
        ),
    ],
)
def test_unbridgeable_interfaces_are_refused(machine: Machine, words: list[str], sentence: str) -> None:
    before = machine.state()
    refused = machine.sojourn("up", *words)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"sojourn: {sentence}")
    assert machine.state() == before


def test_existing_qdisc_of_the_machine_is_not_replaced(machine: Machine) -> None:
    machine.run(
        "tc",
        "qdisc",
        "add",
        "dev",
        "p2",
        "root",
        "handle",
        "7:",
        "tbf",
        "rate",
        "1mbit",
        "burst",
        "2000b",
        "limit",
        "9999b",
    )
    refused = machine.sojourn("up", "p1", "p2", "--mode", "qos")
    assert refused.returncode == 2
    assert "p2 has a queueing discipline of its own (tbf 7:)" in refused.stderr


def test_partial_failure_is_rolled_back(machine: Machine) -> None:
    """A port with a device of its own above it cannot become a bridge's, which the kernel says only then."""
    machine.run("ip", "link", "add", "above", "link", "p2", "type", "macvlan", "mode", "bridge")
    before = machine.state()
    failed = machine.sojourn("up", "p1", "p2", "--mode", "qos", "--take-over")
    assert failed.returncode == 3
    assert "'ip link set dev p2 master br-sojourn' failed" in failed.stderr
    assert machine.state() == before
    assert list((machine.folder / "states").iterdir()) == []


@pytest.mark.parametrize("mode", ["qos", "netfilter"])
def test_ports_are_restored_where_somebody_has_removed_the_bridge(machine: Machine, mode: str) -> None:
    before = machine.state()
    assert machine.sojourn("up", "p1", "p2", "--mode", mode).returncode == 0
    machine.run("ip", "link", "del", "br-sojourn")
    down = machine.sojourn("down")
    assert down.returncode == 0, down.stderr
    assert down.stdout.splitlines() == ["br-sojourn was not there.", "p1 is as it was.", "p2 is as it was."]
    assert machine.state() == before


def test_bridge_with_another_address_keeps_its_state(machine: Machine) -> None:
    before = machine.state()
    assert machine.sojourn("up", "p1", "p2", "--mode", "qos").returncode == 0
    machine.run("ip", "link", "set", "dev", "br-sojourn", "address", "02:00:00:00:00:01")
    refused = machine.sojourn("down")
    assert refused.returncode == 3
    own = re.search(r"\(ip (link set dev br-sojourn address [0-9a-f:]+)\)", refused.stderr)
    assert own is not None, refused.stderr
    machine.run("ip", *own[1].split())
    assert machine.sojourn("down").returncode == 0
    assert machine.state() == before


def test_files_of_a_persisted_bridge_are_removed_with_it(machine: Machine) -> None:
    up = machine.sojourn("up", "p1", "p2", "--mode", "qos", "--name", "lab", "--persist")
    assert up.returncode == 0, up.stderr
    files = {path.name: path.read_text() for path in (machine.folder / "networkd").iterdir()}
    ports = ["60-sojourn-lab-port1.network", "60-sojourn-lab-port2.network"]
    assert sorted(files) == [*ports, "60-sojourn-lab.netdev", "60-sojourn-lab.network"]
    assert "Kind=bridge" in files["60-sojourn-lab.netdev"]
    assert "[Match]\nName=p2\n" in files["60-sojourn-lab-port2.network"]
    assert "Bridge=lab" in files["60-sojourn-lab-port2.network"]
    assert "ClassId=2:12\nRate=20K\nCeilRate=25K" in files["60-sojourn-lab-port2.network"]
    again = machine.sojourn("up", "p1", "p2", "--name", "lab2", "--persist")
    assert again.returncode == 2
    assert "p1 belongs to lab" in again.stderr
    assert machine.sojourn("down", "lab").returncode == 0
    assert list((machine.folder / "networkd").iterdir()) == []


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.proof)])
@pytest.mark.parametrize("mode", ["bridge", "qos", "netfilter"])
def test_after_a_killed_up_or_down_another_down_restores_everything(
    machine: Machine, mode: str, kills: int, proven: Callable[..., None]
) -> None:
    seed = int(os.environ.get("SOJOURN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    moments = random.Random(seed)
    states = machine.folder / "states"
    before = machine.state()
    midway = 0
    for number in range(kills):
        words = ("up", "p1", "p2", "--mode", mode, "--persist") if mode == "qos" else ("up", "p1", "p2", "--mode", mode)
        up = machine.begun(*words)
        await_that(lambda: any(states.glob("*.json")) or up.poll() is not None, "it has begun to change ports")  # noqa: B023 - called at once
        if number % 2:  # it ends; a `down` is killed
            assert up.wait(timeout=60) == 0
            up = machine.begun("down")
            time.sleep(0.2)
        time.sleep(moments.uniform(0, 0.1))
        midway += up.poll() is None
        up.kill()
        up.wait()
        down = machine.sojourn("down")
        assert down.returncode in (0, 2), down.stderr
        assert "not as it was" not in down.stdout
        assert machine.state() == before
        assert list(states.iterdir()) == []
    print(f"{midway} of {kills} were killed at work")
    assert midway or kills < 30
    proven("kills", "`sojourn bridge up` and `down`", kills=kills)


def test_down_waits_for_what_a_killed_up_has_started(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `ip` outlives it: the bridge is made after its death, and `down` removes it all the same."""
    before = machine.state()
    slow = machine.folder / "slow"
    slow.mkdir()
    true = subprocess.run(["sh", "-c", "command -v ip"], capture_output=True, text=True, check=True).stdout.strip()
    slow.joinpath("ip").write_text(f'#!/bin/sh\ncase "$*" in *"type bridge"*) sleep 1;; esac\nexec {true} "$@"\n')
    slow.joinpath("ip").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
        up = machine.begun("up", "p1", "p2")
    await_that(lambda: any((machine.folder / "states").glob("*.json")), "it has begun to change ports")
    time.sleep(0.3)
    up.kill()
    up.wait()
    assert "br-sojourn" not in machine.run("ip", "-o", "link")
    down = machine.sojourn("down")
    assert down.returncode == 0, down.stderr
    assert down.stdout.startswith("Removed br-sojourn.")
    time.sleep(1.2)
    assert machine.state() == before
