"""The modes of devices, built: frames pass, the report has what was made in the kernel, a kill leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest

import sojourn
from sojourn.bed import Bed, BedSpec, build_bed
from sojourn.devices import bridge_qos
from sojourn.errors import MachineError
from tests.net.test_bed_kill import leftovers, namespaces

PACKAGE = Path(sojourn.__file__).parent.parent
CAPTURES = ("bridge:capture", "bridge:bpf", "bridge:tcpdump", "bridge:dumpcap")
MODES = ("bridge:qos", "bridge:netfilter", "bridge:rules*50", *CAPTURES, "router", "router:nat", "xdp")
SHOWN = {
    "bridge": r"bridge forward_delay 0",
    "wire": r"mirred \(Egress Redirect",
    "bridge:qos": r"class htb 2:12 .*rate 20Kbit ceil 25Kbit",
    "bridge:netfilter": r"meta mark set ct mark",
    "bridge:rules*50": r"ether saddr 02:77:ee:00:00:32 drop",
    "bridge:capture": r"d-capture-1l",
    "bridge:bpf": r"d-bpf-1l",
    "bridge:tcpdump": r"d-tcpdump-1l",
    "bridge:dumpcap": r"d-dumpcap-1l",
    "router": r"net.ipv4.ip_forward = 1",
    "router:nat": r"snat ip to 10\.78\.\d+\.254",
    "xdp": r"prog/xdp id \d+",
}


@pytest.fixture
def run() -> str:
    """A run id that nobody else has."""
    return f"test-{uuid.uuid4().hex[:10]}"


def answered(bed: Bed, address: str) -> int:
    """How many of ten echo requests were answered."""
    try:
        said = bed.backend.run("a", ["ping", "-n", "-c", "10", "-i", "0.01", "-W", "1", address])
    except MachineError:
        return 0
    return len(re.findall(r"icmp_seq=\d+ ttl=", said))


@pytest.mark.parametrize("name", ["wire", "bridge", *MODES])
def test_each_mode_forwards_and_shows_its_configuration(run: str, name: str) -> None:
    with build_bed(BedSpec(devices=(name,)), run) as bed:
        link = bed.topology.link(name)
        for address in (link.b_ip4, link.b_ip6):
            assert answered(bed, address) == 10
        objects = bed.objects()[name]
        facts = bed.facts()
    assert re.search(SHOWN[name], "\n".join(objects["shown"].values())), objects
    assert all(objects["shown"].values())
    assert name not in CAPTURES or objects["notes"] == ["The capture ran."]
    assert link.device_host in facts["stable"]["hosts"]


KILL = """here=$(readlink /proc/self/ns/net)
for one in /proc/[0-9]*; do
    [ "$(readlink "$one/ns/net")" = "$here" ] && grep -qa 'd-[a-z]*-1l' "$one/cmdline" || continue
    kill -KILL "${one#/proc/}"
done"""


@pytest.mark.parametrize("name", CAPTURES)
def test_ended_capture_is_reported_after_the_session(run: str, name: str) -> None:
    """The path is a plain bridge from then on: what a capture costs is not what was measured."""
    with build_bed(BedSpec(devices=(name,)), run) as bed:
        before = bed.broken()
        # Of this bed's network stack alone: captures of other beds have interfaces of the same names.
        bed.backend.run(bed.topology.link(name).device_host, ["sh", "-c", KILL])
        deadline = time.monotonic() + 10
        while not (after := bed.broken())[name] and time.monotonic() < deadline:
            time.sleep(0.05)
        notes = bed.notes()
    assert before[name] == []
    assert after[name] == ["the capture had ended before the session did, and the path was a plain bridge by then"]
    assert notes[name] == []


def test_modes_coexist_and_do_not_change_the_plain_bridge(run: str) -> None:
    with build_bed(BedSpec(devices=("bridge", *MODES), layout=3, twins=("direct", "router")), run) as bed:
        for link in bed.topology.links:
            assert answered(bed, link.b_ip4) == 10, link.path
        shared = bed.backend.run("d", ["nft", "list", "ruleset"])
        two = [bed.facts()["hash"] for _ in range(2)]
    assert shared == ""
    assert two[0] == two[1]


def test_mode_netfilter_reports_connection_tracking_and_marks_payload_matches(run: str) -> None:
    """A datagram that begins as a BitTorrent handshake takes the class of 20 kbit/s, and so does what follows it."""
    with build_bed(BedSpec(devices=("bridge:netfilter",)), run) as bed:
        link = bed.topology.link("bridge:netfilter")
        send = [sys.executable, "-I", "-c", SEND, link.b_ip4]
        bed.backend.run("a", [*send, "plain", "plain"])
        before = of_class(bed, "1:12", "d-netfilt-1r")
        bed.backend.run("a", [*send, "\x13BitTorrent protocol", "plain"])
        deadline = time.monotonic() + 10
        while of_class(bed, "1:12", "d-netfilt-1r") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        after = of_class(bed, "1:12", "d-netfilt-1r")
        notes = bed.objects()["bridge:netfilter"]["notes"]
    assert (before, after) == (0, 2)
    assert re.match(r"Connection tracking is (br_netfilter's|the bridge family's own)", notes[0])
    assert "ipp2p" in notes[1]


SEND = """
import socket, sys
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for words in sys.argv[2:]:
    port.sendto(words.encode(), (sys.argv[1], 9))
"""


def of_class(bed: Bed, classid: str, dev: str) -> int:
    """Packets that a class has sent."""
    said = bed.backend.run(bed.topology.links[1].device_host, ["tc", "-s", "class", "show", "dev", dev])
    found = re.search(rf"class htb {classid} .*\n Sent \d+ bytes (\d+) pkt", said)
    assert found, said
    return int(found[1])


def test_nat_hides_the_address_of_a(run: str) -> None:
    with build_bed(BedSpec(devices=("router", "router:nat")), run) as bed:
        seen = {}
        for name in ("router", "router:nat"):
            link = bed.topology.link(name)
            server = bed.backend.start(
                "b", [sys.executable, "-I", "-c", WHO, link.b_ip4], stdout=subprocess.PIPE, text=True
            )
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            bed.backend.run("a", [sys.executable, "-I", "-c", SEND, link.b_ip4, "hello"])
            seen[name] = server.stdout.readline().strip()
        expected = {
            "router": bed.topology.link("router").a_ip4,
            "router:nat": bed.topology.link("router:nat").sides[1].ip4,
        }
    assert seen == expected


WHO = """
import socket, sys
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
port.bind((sys.argv[1], 9))
print("ready", flush=True)
print(port.recvfrom(100)[1][0], flush=True)
"""


def test_mode_unsupported_by_the_kernel_is_refused_naming_the_missing_module(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTB's module stands for one that this kernel has not: the same command, with a word that no kernel knows."""
    real = bridge_qos.classes
    spoilt = [one._replace(line=one.line.replace("htb", "nosuch")) for one in real("DEV", 1, 1)]
    monkeypatch.setattr(
        bridge_qos, "classes", lambda dev, *_: [one._replace(line=one.line.replace("DEV", dev)) for one in spoilt]
    )
    with (
        pytest.raises(
            MachineError, match=r"device bridge:qos cannot be built here.*it needs a kernel with.*CONFIG_NET_SCH_HTB"
        ),
        build_bed(BedSpec(devices=("bridge:qos",)), run),
    ):
        pass


def test_killed_run_leaves_nothing_of_any_mode(run: str) -> None:
    script = textwrap.dedent(f"""
        import time
        from sojourn.bed import BedSpec, build_bed
        with build_bed(BedSpec(devices=("bridge", *{MODES!r})), {run!r}):
            print("built", flush=True)
            time.sleep(60)
    """)
    before = namespaces()
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    controller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env)
    assert controller.stdout is not None
    assert controller.stdout.readline() == "built\n"
    assert len(namespaces() - before) >= 7
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    controller.stdout.close()
    deadline = time.monotonic() + 20
    while leftovers(run) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert leftovers(run) == []
