"""Faults of real hosts: the run names what is lost, hosts clean up by themselves, what was closed is kept, resume ends.

Each fault by itself with its expected outcome, then faults of seeded kinds at seeded moments.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.records.lost import begun_trials, lost_trials, still_lost
from tests.net.host_faults import FAULTS, ROUNDS, Going, room_again, small_disk
from tests.net.real_hosts import SSHD, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]
LEASE_SECONDS = 60.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts whose cables and disks outlive them."""
    with Hosts(tmp_path_factory.mktemp("lab"), patched=True) as hosts:
        yield hosts


def await_nothing(hosts: Hosts, seconds: float, but: str = "") -> None:
    """Wait until nothing of a bed is left, but for what a host's disk may hold."""
    end = time.monotonic() + seconds
    while left := [one for one in hosts.left_behind().values() if not but or set(one.split()) - allowed(one, but)]:
        assert time.monotonic() < end, left
        time.sleep(0.2)


def allowed(left: str, but: str) -> set[str]:
    """The words of what is left that match."""
    return {word for word in left.split() if re.fullmatch(but, word)}


OF_A_DISK = r"/var/tmp/sojourn-\S+|/var/lib/sojourn"
"""What a host that is booted again still has, until the next bed stands there."""


def disturbed(hosts: Hosts, out: str, kind: str, host: str, after: int, *sets: str) -> tuple[Going, int, str]:
    """A run with one fault: what it had closed is kept, what began is either whole or named, nothing is left behind."""
    with Going(hosts, out, *sets) as going:
        going.await_blocks(after)
        told = (block for entry in going.log if entry["event"] == "closed" for block in entry["trials"])
        closed = going.closed & set(told)
        FAULTS[kind](going, host)
        status, said = going.end()
    room_again(hosts)
    lost = {one.block for one in still_lost(going.log)}
    whole = going.closed
    assert closed <= whole - lost, f"{kind} of {host} after {after}: {said}"
    if kind != "kill":
        assert begun_trials(going.log).keys() <= whole | lost, said
    await_nothing(hosts, LEASE_SECONDS, OF_A_DISK if kind == "boot" else "")
    return going, status, said


def gone_on_with(going: Going) -> dict[str, str]:
    """Resume it to its end: every block is there and counts; gives the finding about the lost ones, if there is one."""
    results = going.resume()
    plan_blocks = next(entry["blocks"] for entry in going.log if entry["event"] == "started")
    assert going.closed == set(range(plan_blocks))
    assert still_lost(going.log) == []
    assert all(one.again for one in lost_trials(going.log))
    assert results
    findings = json.loads(going.folder.verdict.read_text())["findings"]
    found = [one for one in findings if one["name"] == "blocks_lost"]
    assert all(one["severity"] == "note" for one in found)
    assert bool(found) == bool(lost_trials(going.log))
    assert bool(found) == any("blocks_lost" in row["findings"] for row in results)
    return found[0] if found else {}


NAMES = r"(\d+ blocks are|1 block is) lost: session 0, round \d, (direct|a/a|bridge), cell 0 \(block \d+\)"
proof = pytest.mark.proof


@pytest.mark.parametrize(
    ("kind", "host", "status", "sentence"),
    [
        pytest.param("pull", "device", 4, r"eth2 of host A \(a\.lab\) lost its link; ", id="a link flaps"),
        pytest.param("boot", "a", 3, r"host A \(a\.lab\): the SSH connection was lost; ", id="A boots", marks=proof),
        pytest.param("boot", "b", 3, r"host B \(b\.lab\): the SSH connection was lost; ", id="B boots", marks=proof),
        pytest.param("end_sessions", "device", 3, r"host device \(device\.lab\): the SSH connection was lost; ",
                     id="a session ends", marks=proof),
        pytest.param("fill", "a", 4, r"host A \(a\.lab\): write /var/tmp/\S+: the disk is full; .*; ",
                     id="a disk fills", marks=proof),
    ],
)  # fmt: skip
def test_run_names_the_records_lost_by_a_fault_and_continues(
    kind: str, host: str, status: int, sentence: str, hosts: Hosts
) -> None:
    out = f"{kind}-{host}"
    small_disk(hosts)
    going, ended, said = disturbed(hosts, out, kind, host, 15, ROUNDS, "bed.sessions=1")
    assert ended == status, said
    told = re.search(sentence + NAMES + r".*; go on with: sojourn run --resume", said)
    assert told, said
    await_nothing(hosts, 1, OF_A_DISK if kind == "boot" else "")
    found = gone_on_with(going)
    assert re.match(NAMES, found["sentence"]), found
    assert found["sentence"].endswith("they were measured again")
    await_nothing(hosts, 5)


@pytest.mark.proof
def test_records_lost_by_a_killed_run_are_named_on_resume(hosts: Hosts) -> None:
    going, ended, said = disturbed(hosts, "killed", "kill", "a", 15, ROUNDS, "bed.sessions=1")
    assert ended == -9, said
    bed, had = hosts.folder / "bed.toml", going.closed
    words = bed.read_text()
    bed.write_text(words.replace("a.lab", "?.lab").replace("b.lab", "a.lab").replace("?.lab", "b.lab"))
    refused = hosts.sojourn("run", "--resume", "killed", "--no-history")
    assert refused.returncode == 2, refused.stderr
    assert "was begun on another bed (host A is another machine; host B is another machine): go" in refused.stderr
    bed.write_text(words)
    assert going.closed == had
    await_nothing(hosts, 5)
    assert re.match(NAMES, gone_on_with(going)["sentence"])
    await_nothing(hosts, 5)


def at_random(hosts: Hosts, seed: int) -> None:
    """One fault of a drawn kind, of a drawn host, at a drawn moment of a short study."""
    drawn = random.Random(seed)
    kind, host = drawn.choice(sorted(FAULTS)), drawn.choice(["a", "b", "device"])
    after, sessions = drawn.randrange(1, 20), drawn.choice([1, 2])
    print(f"seed {seed}: {kind} of {host} after {after} blocks, {sessions} beds")
    small_disk(hosts)
    begun = time.monotonic()
    going, ended, said = disturbed(
        hosts, f"run-{seed}", kind, host, after, "pairs.rounds=4", f"bed.sessions={sessions}"
    )
    print(f"  status {ended} after {time.monotonic() - begun:.0f} s: {said.strip().splitlines()[-1][:200]}")
    assert ended in {0, 3, 4, -9}, said
    if ended in {3, 4} and "lost" not in said:
        assert going.log[-1]["event"] == "finished", said
    gone_on_with(going)
    await_nothing(hosts, 5)


SEED = 20261126


def test_random_fault_loses_no_closed_record(hosts: Hosts) -> None:
    at_random(hosts, SEED)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(SEED + 1, SEED + 51))
def test_random_faults_lose_no_closed_record(seed: int, hosts: Hosts) -> None:
    at_random(hosts, seed)
