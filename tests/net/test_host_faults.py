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
from tests.net.host_faults import CABLES, FAULTS, STUDIES, Going, room_again, small_disk, unrecorded
from tests.net.real_hosts import SSHD, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts of their own need root"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason=f"{SSHD} is not there: scripts/setup.sh test"),
]
LEASE_SECONDS = 60.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts whose cables and disks outlive them."""
    with Hosts(tmp_path_factory.mktemp("lab"), cables=CABLES, patched=True) as hosts:
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


def disturbed(
    hosts: Hosts, out: str, study: str, kind: str, host: str, after: int, *sets: str
) -> tuple[Going, int, str]:
    """A run with one fault: what it had closed is kept, what began is either whole or named, nothing is left behind."""
    with Going(hosts, out, study, *sets) as going:
        going.await_blocks(after)
        told = (block for entry in going.log if entry["event"] == "closed" for block in entry["trials"])
        closed = going.closed & set(told)
        FAULTS[kind](going, host)
        status, said = going.end()
    room_again(hosts)
    assert closed or study != "bridge-latency" or after < 10, "records are fetched every second"
    lost = {one.block for one in still_lost(going.log)}
    whole = going.closed
    assert closed <= whole - lost, f"{study}, {kind} of {host} after {after}: {said}"
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
    assert unrecorded(going.folder) == []
    assert results
    findings = json.loads(going.folder.verdict.read_text())["findings"]
    found = [one for one in findings if one["name"] == "blocks_lost"]
    assert all(one["severity"] == "note" for one in found)
    assert bool(found) == bool(lost_trials(going.log))
    assert bool(found) == any("blocks_lost" in row["findings"] for row in results)
    return found[0] if found else {}


NAMES = r"(\d+ blocks are|1 block is) lost: session 0, round \d, (direct|a/a|bridge|emulate), cell \d \(block \d+\)"
proof = pytest.mark.proof


def saying(kind: str, host: str, device: str) -> tuple[int, str]:
    """The status of a run with a fault, and what it says of it."""
    name = f"host {host.upper() if len(host) == 1 else host} \\({host}\\.lab\\)"
    if kind == "pull":
        port = "eth1" if host == "b" else {"bridge": "eth2", "emulate": "eth3"}[device]
        return 4, rf"{port} of host A \(a\.lab\) lost its link; "
    if kind == "fill":
        return 4, rf"{name}: (\S+: )*write /var/tmp/\S+: the disk is full; .*; "
    return 3, rf"{name}: the SSH connection was lost; "


PROBES = [
    pytest.param("bridge-latency", "pull", "device", 15, id="a link flaps"),
    pytest.param("bridge-latency", "boot", "a", 15, id="A boots", marks=proof),
    pytest.param("bridge-latency", "boot", "b", 15, id="B boots", marks=proof),
    pytest.param("bridge-latency", "end_sessions", "device", 15, id="a session ends", marks=proof),
    pytest.param("bridge-latency", "fill", "a", 15, id="a disk fills", marks=proof),
]
OTHERS = [
    pytest.param(study, kind, host, after, id=f"{study}, {kind} of {host}", marks=proof)
    for study, after, faults in (
        ("emulator-delay", 10, "boot device,end_sessions device,fill device,fill b,pull device"),
        ("one-way", 8, "boot a,boot b,boot device,fill b,fill a,pull device"),
        ("bufferbloat", 3, "boot a,boot b,boot device,end_sessions b,fill b,pull device"),
        ("tcp-methodology", 5, "boot b,fill a,pull device"),  # a transfer: TCP waits for its link, a baseline fails
        ("rfc2544", 2, "boot a,boot b,boot device,fill b,pull device"),
        ("bridge-modes", 8, "boot device,end_sessions device,fill device,boot b,pull device"),
    )
    for kind, host in (fault.split() for fault in faults.split(","))
]


@pytest.mark.parametrize(("study", "kind", "host", "after"), [*PROBES, *OTHERS])
def test_run_names_the_records_lost_by_a_fault_and_continues(
    study: str, kind: str, host: str, after: int, hosts: Hosts
) -> None:
    out = f"{study}-{kind}-{host}"
    small_disk(hosts)
    status, sentence = saying(kind, host, STUDIES[study].device)
    rounds = f"{STUDIES[study].rounds}={-(-3 * after // STUDIES[study].blocks_of_round)}"
    going, ended, said = disturbed(hosts, out, study, kind, host, after, rounds, "bed.sessions=1")
    assert ended == status, said
    told = re.search(sentence + NAMES + r".*; go on with: sojourn run --resume", said)
    assert told, said
    await_nothing(hosts, 1, OF_A_DISK if kind == "boot" else "")
    found = gone_on_with(going)
    assert re.match(NAMES, found["sentence"]), found
    assert found["sentence"].endswith("they were measured again")
    await_nothing(hosts, 5)


@pytest.mark.proof
@pytest.mark.parametrize("study", [one for one in STUDIES if one != "bridge-latency"])
def test_what_a_killed_run_of_any_study_lost_is_named_when_it_goes_on(study: str, hosts: Hosts) -> None:
    small_disk(hosts)
    rounds = f"{STUDIES[study].rounds}=4"
    going, ended, said = disturbed(hosts, f"killed-{study}", study, "kill", "a", 3, rounds, "bed.sessions=1")
    assert ended == -9, said
    assert re.match(NAMES, gone_on_with(going)["sentence"])
    await_nothing(hosts, 5)


@pytest.mark.proof
def test_records_lost_by_a_killed_run_are_named_on_resume(hosts: Hosts) -> None:
    going, ended, said = disturbed(
        hosts, "killed", "bridge-latency", "kill", "a", 15, "pairs.rounds=8", "bed.sessions=1"
    )
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


def at_random(hosts: Hosts, seed: int, studies: Sequence[str]) -> None:
    """One fault of a drawn kind, of a drawn host, at a drawn moment of a drawn study."""
    drawn = random.Random(seed)
    kind, host = drawn.choice(sorted(FAULTS)), drawn.choice(["a", "b", "device"])
    of = STUDIES[drawn.choice(studies)]
    after, sessions = drawn.randrange(1, 4 * of.blocks_of_round - 4), drawn.choice([1, 2])
    print(f"seed {seed}: {of.study}, {kind} of {host} after {after} blocks, {sessions} beds")
    small_disk(hosts)
    begun = time.monotonic()
    going, ended, said = disturbed(
        hosts, f"run-{seed}", of.study, kind, host, after, f"{of.rounds}=4", f"bed.sessions={sessions}"
    )
    print(f"  status {ended} after {time.monotonic() - begun:.0f} s: {said.strip().splitlines()[-1][:200]}")
    assert ended in {0, 3, 4, -9}, said
    if ended in {3, 4} and "lost" not in said:
        assert going.log[-1]["event"] == "finished", said
    gone_on_with(going)
    await_nothing(hosts, 5)


SEED = 20261126


def test_random_fault_loses_no_closed_record(hosts: Hosts) -> None:
    at_random(hosts, SEED, ["bridge-latency"])


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(SEED + 1, SEED + 51))
def test_random_faults_lose_no_closed_record(seed: int, hosts: Hosts) -> None:
    at_random(hosts, seed, list(STUDIES))
