"""Paths that share their ports on real sshd's: a program, or a person at a terminal, puts one of them in place."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.instruments import find_instrument
from tests.children import Child
from tests.net.busy_machine import idle_ends
from tests.net.real_hosts import SOJOURN, SSHD, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]

RUN = ("run", "bridge-latency", "--quick", "--no-history", "--set", "probe.icmp_bytes=64")
PATH = '\n[paths."{}"]\na = "eth1"\nb = "eth1"\nswitch = "{}"\n'
SWITCH = """#!/bin/sh
# The second end of the cable: beside the first one, or behind the device.
case $1 in direct) to=patch0 ;; far) to=far ;; *) echo "no port $1" >&2; exit 7 ;; esac
ip link set dev c0-1 down
ip link set dev c0-1 master $to
ip link set dev c0-1 up
echo "$SOJOURN_PATH" >>{log}
"""
DEVICE = """
ip link add name far type bridge stp_state 0 mcast_snooping 0
ip link add name near0 type veth peer name left
ip link add name far0 type veth peer name right
ip link set dev near0 master patch0; ip link set dev far0 master far
for dev in far near0 far0 left right; do ip link set dev $dev addrgenmode none up; done
"""
HOLD = "delay 500us"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts with one cable, which the desk can lead through a device."""
    with Hosts(tmp_path / "lab", names=("a", "b"), cables=(("a", "eth1", "b", "eth1"),), patched=True) as hosts:
        hosts.at("desk", "sh", "-ec", DEVICE)
        switch = hosts.folder / "switch"
        switch.write_text(SWITCH.format(log=hosts.folder / "switched"))
        switch.chmod(0o755)
        own = ("--control", str(hosts.folder / "device.sock"))  # others are asked for the only one that runs
        words = ("emulate", "run", "left", "right", "--forward", HOLD, "--backward", HOLD, "--json", *own)
        with Child(hosts.command(find_instrument(), *words), stdout=subprocess.PIPE, text=True) as device:
            assert device.stdout is not None
            assert '"ready"' in device.stdout.readline()
            yield hosts
            device.terminate()
            device.communicate(timeout=60)
        assert hosts.left_behind() == {}


def bed(hosts: Hosts, direct: str, far: str) -> str:
    return str(hosts.bed(PATH.format("direct", direct) + PATH.format("dut:far", far)))


def passed(hosts: Hosts) -> int:
    """Frames that the device has forwarded towards A: those towards B that its bridge floods come to it in any case."""
    told: list[dict[str, Any]] = json.loads(hosts.at("desk", "ip", "-s", "-j", "link", "show", "dev", "near0"))
    return int(told[0]["stats64"]["rx"]["packets"])


def test_switching_program_connects_each_path_and_the_device_is_measured(hosts: Hosts) -> None:
    file = bed(hosts, "./switch direct", "./switch far")
    checked = hosts.sojourn("bed", "check", file)
    assert checked.returncode == 0, checked.stdout
    assert len(re.findall(r"path (direct|dut:far)\s+B answered 20 of 20", checked.stdout)) == 2, checked.stdout

    (hosts.folder / "switched").unlink()
    before = passed(hosts)
    more = ("--set", "bed.sessions=2", "--set", "pairs.rounds=4", *idle_ends())
    done = hosts.sojourn(*RUN, *more, "--bed", file, "--out", "run", "--json")
    assert done.returncode in (0, 4), done.stdout + done.stderr
    run = hosts.folder / "run"
    results = json.loads((run / "analysis/results.json").read_text())
    [row] = [row for row in results if (row["quantity"], row["device"], row["statistic"]) == (
        "device_latency", "dut:far", "mean")]  # fmt: skip
    # One way: the device holds each packet for half a millisecond, and forwards it.
    assert 0.5e6 < row["estimate"] < 0.7e6, row
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    turns = [(one["part"], one["path"]) for one in log if one["event"] == "in-place"]
    assert sum(path == "dut:far" for _, path in turns) >= 4
    assert all(one != other for one, other in itertools.pairwise(turns))
    assert [one for one in log if one["event"] == "lost"] == []
    # What passed the device is what was sent over its path, and no more than a few frames of the checks.
    sent = [one for one in log if one["event"] == "block" and one["device"] == "dut:far"]
    probes = sum(one["sent"] for one in sent) + sum(one["sent"] for one in log if one["event"] == "warm-up"
                                                    and one["device"] == "dut:far")  # fmt: skip
    assert probes <= passed(hosts) - before <= probes + 20 * len(turns)


@pytest.mark.parametrize(
    ("far", "status", "said"),
    [
        ("./switch nowhere", 3, "ended with status 7: no port nowhere"),
        ("./missing", 3, "cannot be run: No such file"),
        ("person", 3, "this is no terminal"),
    ],
)
def test_failing_switching_program_ends_the_run_with_one_sentence(
    hosts: Hosts, far: str, status: int, said: str
) -> None:
    done = hosts.sojourn(*RUN, "--set", "bed.sessions=2", "--bed", bed(hosts, "./switch direct", far), "--out", "run")
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stderr


def test_path_without_replies_is_refused(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sojourn.bed.turns.ANSWER_SECONDS", 3.0)
    hosts.at("desk", "ip", "link", "set", "dev", "far0", "down")
    file = bed(hosts, "./switch direct", "./switch far")
    done = hosts.sojourn(*RUN, "--set", "bed.sessions=1", "--bed", file, "--out", "run")
    assert done.returncode == 3
    assert "path dut:far: B does not answer A within 3 s after its program ended" in done.stderr


def test_user_is_prompted_to_recable_between_passes(hosts: Hosts) -> None:
    file = bed(hosts, "person", "person")
    ours, theirs = pty.openpty()
    more = ("--set", "bed.sessions=2", "--set", "pairs.rounds=2", "--set", "pairs.at_most=60s", *idle_ends())
    argv = hosts.command(SOJOURN, *RUN, *more, "--bed", file, "--out", "run", "--no-report")
    asked: list[str] = []
    with Child(argv, stdin=theirs, stdout=theirs, stderr=theirs, cwd=hosts.folder) as person:
        os.close(theirs)
        said, deadline = "", time.monotonic() + 240
        while person.poll() is None:
            assert time.monotonic() < deadline, said
            if not select.select([ours], [], [], 0.5)[0]:
                continue
            try:
                said += os.read(ours, 4096).decode(errors="replace")
            except OSError:  # it has ended
                break
            if found := re.search(r"Connect eth1 of host A and eth1 of host B by ([^;]+); then press Enter: ", said):
                asked.append(found[1])
                said = said[found.end() :]
                to = "far" if found[1] == "dut:far" else "direct"
                hosts.at("desk", str(hosts.folder / "switch"), to)
                os.write(ours, b"\n")
        assert person.wait(60) in (0, 4), said
    os.close(ours)
    log = [json.loads(line) for line in (hosts.folder / "run/log.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "finished"
    blocks = [one["device"] for one in log if one["event"] == "block"]
    assert {"direct", "dut:far"} <= set(blocks)
    # Twice a session at most three times: when it begins, for the warm-up, and between the passes.
    assert 4 <= len(asked) <= 8, asked
