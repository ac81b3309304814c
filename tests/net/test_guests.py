"""A bed over SSH of which one host is a guest of QEMU: Debian's own kernel, nothing installed but sshd and iproute2.

The device is the guest: it has no ethtool, no Python, no compiler. Its processor is emulated, so its times are no
measurement of a kernel: what is judged here is that everything works, and that nothing is left.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from sojourn.bed.copies import instrument_for_hosts
from sojourn.records import RunFolder
from sojourn.records.log import read_log
from sojourn.records.lost import begun_trials, still_lost
from tests.net.busy_machine import idle_ends
from tests.net.guests import RELEASES, Guests, image_of
from tests.net.host_faults import Going

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.proof,
    pytest.mark.alone,  # an emulated machine keeps both processors busy
    pytest.mark.may_skip,  # where Debian's archive cannot be had, and for that alone
]
CABLES = (("a", "eth1", "b", "eth1"), ("a", "eth2", "device", "left"), ("device", "right", "b", "eth2"))
LEASE_SECONDS = 60.0


@pytest.fixture(scope="module", params=RELEASES)
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    """Two hosts that are namespaces and a device that is a guest with this kernel."""
    image = image_of(request.param)
    with Guests(tmp_path_factory.mktemp("lab"), images={"device": image}, cables=CABLES) as guests:
        assert guests.at("device", "uname", "-r").startswith(f"{request.param}.")
        yield guests


def await_nothing(hosts: Guests, seconds: float) -> None:
    """Wait until nothing of a bed is left on any host that is still there."""
    end = time.monotonic() + seconds
    while left := hosts.left_behind():
        assert time.monotonic() < end, left
        time.sleep(0.5)


PORTS = "for port in /sys/class/net/*; do echo ${port##*/} $(cat $port/address $port/mtu $port/flags); done"


def test_guest_without_tools_is_checked_measured_and_restored(hosts: Guests) -> None:
    assert not hosts.at("device", "sh", "-c", "for tool in ethtool python3 cc gcc; do command -v $tool; done; true")
    before = hosts.at("device", "sh", "-c", PORTS)

    asked = ["a.lab", "b.lab", "--device", "device.lab", "--config", str(hosts.config)]
    new = hosts.sojourn("bed", "new", *asked)
    assert new.returncode == 0, new.stderr
    (hosts.folder / "bed.toml").write_text(new.stdout)

    done = hosts.sojourn("bed", "check", "bed.toml", "--json")
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert done.returncode == found["status"] == 0, found
    assert checks["host device: tools"]["found"] == "all there"
    assert checks["path bridge"]["found"].startswith("B answered 20 of 20 probes"), checks["path bridge"]
    ports = [check["found"] for name, check in checks.items() if re.fullmatch(r"host device: \w+ \(bridge\)", name)]
    assert len(ports) == 2, checks
    assert not any("offloads on: gro" in port for port in ports), "switched off by our own ethtool, and read back"
    await_nothing(hosts, 5)

    argv = ["run", "bridge-latency", "--quick", "--no-history", *idle_ends(), "--bed", "bed.toml", "--out", "run"]
    done = hosts.sojourn(*argv, seconds=1200)
    print(done.stdout, done.stderr)
    assert done.returncode in (0, 4), done.stderr
    folder = RunFolder(hosts.folder / "run")
    log = read_log(folder.log)
    assert log[-1]["event"] == "finished"
    assert {entry["device"] for entry in log if entry["event"] == "block"} == {"direct", "a/a", "bridge"}
    assert json.loads(folder.verdict.read_text())["sentence"]
    bed = json.loads((hosts.folder / "run/bed.json").read_text())["stable"]
    links = [
        link for host in bed["hosts"].values() for link in host["links"].values() if link.get("driver") == "virtio_net"
    ]
    assert len(links) == 2, bed["hosts"]
    for link in links:
        assert link["rings"].keys() == {"RX", "TX"}
        assert link["offloads"]["generic-receive-offload"] == "off"
    await_nothing(hosts, 5)
    assert hosts.at("device", "sh", "-c", PORTS) == before


def test_built_in_ethtool_sets_and_reads_ring_sizes_in_a_guest(hosts: Guests) -> None:
    """What no interface of a namespace has."""
    own = "/root/ethtool"
    copy = hosts.command("ssh", "-F", str(hosts.config), "device.lab", f"cat >{own} && chmod 755 {own}")
    subprocess.run(copy, input=instrument_for_hosts().read_bytes(), check=True, timeout=120)
    port = hosts.at("device", "sh", "-c", "ls /sys/class/net").split()[0]

    def sizes() -> dict[str, str]:
        now = hosts.at("device", own, "-g", port).partition("Current hardware settings:")[2]
        return dict(re.findall(r"^(RX|TX):\s*(\d+)$", now, re.MULTILINE))

    try:
        before = sizes()
        assert before.keys() == {"RX", "TX"}
        hosts.at("device", own, "-G", port, "rx", "64", "tx", "128")
        assert sizes() == {"RX": "64", "TX": "128"}
        hosts.at("device", own, "-G", port, "rx", before["RX"], "tx", before["TX"])
        assert sizes() == before
        assert hosts.at("device", own, "-i", port) == "driver: virtio_net\n"
    finally:
        hosts.at("device", "rm", "-f", own)


def test_killed_guest_loses_only_the_open_batch_and_is_named(hosts: Guests) -> None:
    with Going(hosts, "killed", "bridge-latency", "pairs.rounds=8", "bed.sessions=1", bed=hosts.bed()) as going:
        going.await_blocks(9)
        hosts.vanish("device")
        status, said = going.end()
    print(said)
    lost = {one.block for one in still_lost(going.log)}
    assert status == 3, said
    names = r"(\d+ blocks are|1 block is) lost: session 0, round \d, (direct|a/a|bridge), cell 0 \(block \d+\)"
    assert re.search(r"host device \(device\.lab\): the SSH connection was lost; " + names, said), said
    assert "go on with: sojourn run --resume" in said
    assert lost
    assert begun_trials(going.log).keys() <= going.closed | lost
    await_nothing(hosts, LEASE_SECONDS)
