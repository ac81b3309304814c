"""A bed over SSH on hosts that have no ethtool: the instrument speaks for it, also where features are given back by a
host alone, or by the next keeper.

The tool is hidden on each host by a mount, and shown again to look at what was given back.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.bed.copies import instrument_for_hosts
from tests.net.real_hosts import SSHD, Hosts
from tests.net.test_real_hosts import ETHTOOL, LEASE_SECONDS, ONE_BED, SHORT, await_nothing, settings, started
from tests.unit.printed_json import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts."""
    with Hosts(tmp_path_factory.mktemp("lab")) as hosts:
        yield hosts


@pytest.fixture
def hosts(lab: Hosts) -> Iterator[Hosts]:
    """Three hosts without ethtool; at the end they have it, and their interfaces what they had."""
    for name, port in (("a", "eth1"), ("b", "eth2"), ("device", "eth1")):
        lab.at(name, "ethtool", "-K", port, "tso", "off", "gro", "on")
    before = settings(lab)
    for name in lab.names:
        lab.at(name, "mount", "-n", "--bind", "/dev/null", ETHTOOL)
    try:
        yield lab
        await_nothing(lab, LEASE_SECONDS)
    finally:
        show(lab)
    assert settings(lab) == before


def show(hosts: Hosts) -> None:
    """Give every host its ethtool back."""
    for name in hosts.names:
        hosts.at(name, "sh", "-c", f"umount {ETHTOOL} 2>/dev/null; true")


def test_hosts_without_ethtool_are_checked_and_measured_alike(hosts: Hosts) -> None:
    bed = str(hosts.bed())
    done = hosts.sojourn("bed", "check", bed, "--json")
    checks = {check["name"]: check for check in printed("bed-check", done.stdout)["checks"]}
    assert done.returncode == 0, done.stdout
    assert checks["host A: eth1 (direct)"]["found"] == "10000Mb/s, duplex full"
    assert checks["host device: tools"]["found"] == "all there"
    argv = ("run", "bridge-latency", *SHORT, *ONE_BED, "--bed", bed, "--no-report", "--out")
    done = hosts.sojourn(*argv, "ours")
    assert done.returncode in (0, 4), done.stderr
    await_nothing(hosts, 5)
    show(hosts)
    done = hosts.sojourn(*argv, "theirs")
    assert done.returncode in (0, 4), done.stderr
    ours, theirs = (json.loads((hosts.folder / run / "bed.json").read_text()) for run in ("ours", "theirs"))
    links = {name: host["links"] for name, host in ours["stable"]["hosts"].items()}
    assert links == {name: host["links"] for name, host in theirs["stable"]["hosts"].items()}
    assert ours["hash"] == theirs["hash"]
    of_a = list(links["a"].values())
    assert [link["driver"] for link in of_a] == ["veth", "veth"], links
    assert {link["offloads"]["generic-receive-offload"] for link in of_a} == {"off"}


def test_host_restores_offloads_when_the_controller_is_killed(hosts: Hosts) -> None:
    process = started(hosts, "killed")
    process.kill()
    process.communicate()


def test_next_keeper_restores_settings_of_a_killed_one_with_its_instrument(hosts: Hosts) -> None:
    other = "/var/lib/sojourn/0123456789abcdef"
    mac = hosts.at("a", "cat", "/sys/class/net/eth1/address").strip()
    put = f"mkdir -p {other} /run/sojourn; cat >{other}/sojourn-instrument; chmod 755 {other}/sojourn-instrument"
    argv = ["nsenter", f"--target={hosts.pid('a')}", "--mount", "--", "sh", "-ec", put]
    subprocess.run(argv, input=instrument_for_hosts().read_bytes(), check=True)
    left = f"""
ln -s sojourn-instrument {other}/ethtool && {other}/ethtool -K eth1 gro off tx-checksum-ip-generic off || exit 1
printf 'gro: on\\ntx-checksum-ip-generic: on\\n' >/run/sojourn/features.eth1
echo "4194300 eth1 a1 {mac} 1500 down" >/run/sojourn/taken.4194300
"""
    hosts.at("a", "sh", "-c", left)
    try:
        done = hosts.sojourn("bed", "check", str(hosts.bed()))
        assert done.returncode == 0, done.stdout
    finally:
        hosts.at("a", "sh", "-c", f"rm -r {other}; rmdir /var/lib/sojourn; true")
