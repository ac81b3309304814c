"""Paths that share their ports on real sshd's: a program, or a person at a terminal, puts one of them in place.

The device is the emulator at the desk, which the hosts know nothing of: it holds each frame for a known time, and in
some tests it has a known rate.
"""

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
from tests.net.busy_machine import idle_ends, retried, thrice, undisturbed
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


RATE_BPS = 20e6
RATED = f"rate {RATE_BPS / 1e6:.0f}Mbit/s delay 500us queue 10"


@pytest.fixture
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Two hosts with one cable, which the desk can lead through a device; a test may say what that does towards B."""
    with Hosts(tmp_path / "lab", names=("a", "b"), cables=(("a", "eth1", "b", "eth1"),), patched=True) as hosts:
        hosts.at("desk", "sh", "-ec", DEVICE)
        switch = hosts.folder / "switch"
        switch.write_text(SWITCH.format(log=hosts.folder / "switched"))
        switch.chmod(0o755)
        own = ("--control", str(hosts.folder / "device.sock"))  # others are asked for the only one that runs
        ways = ("--forward", getattr(request, "param", HOLD), "--backward", HOLD)
        words = ("emulate", "run", "left", "right", *ways, "--json", *own)
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
    row = row_of(results, "device_latency", "dut:far")
    # One way: the device holds each packet for half a millisecond, and forwards it, later on a busy machine. Both ways
    # would be a whole millisecond.
    assert 0.5e6 < row["estimate"] < 1e6, row
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


def measured(hosts: Hosts, study: str, *sets: str, least_turns: int = 4) -> list[dict[str, Any]]:
    """The results of a study over the device and without it, each of whose trials had its path in place."""
    file = bed(hosts, "./switch direct", "./switch far")
    (hosts.folder / "switched").unlink(missing_ok=True)
    more = [word for one in sets for word in ("--set", one)]
    run = hosts.folder / f"run-{len(list(hosts.folder.glob('run-*')))}"
    argv = ("run", study, "--quick", "--no-history", "--no-report", "--bed", file, "--out", run.name)
    done = hosts.sojourn(*argv, *more, *idle_ends())
    assert done.returncode in (0, 4), done.stderr
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [one for one in log if one["event"] == "lost"] == []
    in_place, turns = "direct", 0  # it is connected first, before any link is waited for
    for one in log:
        if one["event"] == "in-place":
            assert one["path"] != in_place
            in_place, turns = one["path"], turns + 1
        elif one["event"] in {"stream-trial", "tcp-trial"}:
            assert (one.get("device") or one["path"]).replace("a/a", "direct") == in_place, one
        elif one["event"] == "clock-trial":
            assert in_place == "direct"
    switched = (hosts.folder / "switched").read_text().split()
    assert turns >= least_turns
    assert switched[-turns:] == [one["path"] for one in log if one["event"] == "in-place"]
    found: list[dict[str, Any]] = json.loads((run / "analysis/results.json").read_text())
    return found


def row_of(rows: list[dict[str, Any]], quantity: str, device: str, statistic: str = "mean") -> dict[str, Any]:
    """The row of a quantity of a path."""
    of = (quantity, device, statistic)
    found = [row for row in rows if (row["quantity"], row["device"], row["statistic"]) == of]
    assert len(found) == 1, (of, {(row["quantity"], row["device"], row["statistic"]) for row in rows})
    return found[0]


ONE_WAY = ("bed.sessions=1", "stream.payload_bytes=64", "stream.interval=1ms", "stream.schedule=regular",
           "trials.rounds=6", "trials.duration=100ms", "trials.at_most=1h")  # fmt: skip
"""Of fewer than six pairs there is no interval of 95 %."""


@retried
def test_what_the_device_adds_one_way_is_found_within_the_interval(hosts: Hosts) -> None:
    rows = measured(hosts, "one-way", *ONE_WAY)
    with undisturbed():
        row = row_of(rows, "device_latency", "dut:far")  # there is none where a busy machine let queues grow
    assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"], "each path is asked for B's time over itself"
    with undisturbed():
        # It holds each frame for half a millisecond, and forwards it.
        assert row["ci_low"] < 0.7e6, row
        assert row["ci_high"] > 0.5e6, row
        assert row["ci_high"] - row["ci_low"] < 2e6, row


THROUGHPUT = ("bed.sessions=1", "stream.payload_bytes=1024", "trials.rounds=4", "trials.duration=300ms",
              "trials.at_most=1h")  # fmt: skip


@pytest.mark.parametrize("hosts", [RATED], indirect=True)
@thrice  # while its emulator has no processor, the ten frames that may wait are soon more
def test_what_the_device_carries_is_found_within_the_interval(hosts: Hosts) -> None:
    rows = measured(hosts, "throughput", *THROUGHPUT)
    with undisturbed():
        row = row_of(rows, "throughput_pps", "dut:far")  # "at_least" where the tester itself was hardly faster
        truth = RATE_BPS / 8 / (row["frame_bytes"] - 4)  # its rate counts a frame without its FCS
        # The frames that still wait when the sender ends are of no rate: ten of 700.
        assert 0.98 * row["ci_low"] < truth < 1.02 * row["ci_high"], row
        assert row["ci_high"] < 1.2 * truth, row
        fastest = [row for row in rows if (row["quantity"], row["device"]) == ("throughput_pps", "direct")]
        assert all(one["estimate"] > 2 * truth for one in fastest)


SEARCH = ("bed.sessions=1", "search.tests=throughput", "search.repetitions=2", "search.at_most=240s",
          "search.goals=0.05", "search.max_rate=20kpps", "search.width=0.05", "search.duration=300ms",
          "search.duration_sum=600ms", "stream.frame_bytes=1024")  # fmt: skip
"""In trials of 80 ms the ten frames that wait at the end would be a twentieth of all."""


@retried
@pytest.mark.parametrize("hosts", [RATED], indirect=True)
def test_a_search_finds_what_the_device_carries(hosts: Hosts) -> None:
    rows = measured(hosts, "rfc2544", *SEARCH, least_turns=1)  # one search follows the other over the device
    with undisturbed():
        row = row_of(rows, "pdr_0.05", "dut:far", "rate")
        truth = RATE_BPS / 8 / (1024 - 4)
        assert 0.8 * truth < row["estimate"] < 1.1 * truth, "a twentieth may be lost, and ten frames wait"


TRANSFERS = ("bed.sessions=1", "short.rounds=3", "short.transfers=5", "short.size_bytes=10000")


@retried
def test_transfers_pass_the_device_and_clock_trials_the_direct_path(hosts: Hosts) -> None:
    row = row_of(measured(hosts, "short-flows", *TRANSFERS), "completion_time", "dut:far")
    assert 0 < row["clock_error95_ns"] <= row["clock_bound_ns"]
    assert 0.5e6 - row["clock_bound_ns"] < row["estimate"], row
    with undisturbed():
        assert row["estimate"] < 20e6, row


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
