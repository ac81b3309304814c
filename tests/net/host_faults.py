"""Faults of real hosts while a run goes on, by name: a boot, a pulled cable, ended sessions, a full disk, a dead run.

Each is done to hosts that are patched. What a run should make of them is for the tests to say.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.methods import load
from sojourn.plan import Plan, load_plan
from sojourn.records import RunFolder
from sojourn.records.log import read_log
from sojourn.records.lost import BEGUN, in_parts, lost_blocks
from sojourn.records.reader import rows_of_blocks
from tests.cabled import cabled
from tests.net.busy_machine import sleeping_ends

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from tests.net.real_hosts import Hosts

CABLES, _ = cabled(["bridge", "emulate"])
"""Of a bench that has a path for every study here."""


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A study whose runs are disturbed: it takes seconds."""

    study: str
    device: str
    """What is measured, between A and B."""
    rounds: str
    """The key that has the number of rounds."""
    blocks_of_round: int
    sets: tuple[str, ...]


EMULATED = "emulate.words=rate 20Mbit/s delay 5ms queue 40"
LONG = "at_most=3600s"
"""No round is left out because the machine is busy."""

STUDIES = {
    one.study: one
    for one in (
        Disturbed(
            "bridge-latency", "bridge", "pairs.rounds", 6,
            ("pairs.probes_per_block=200", "probe.icmp_bytes=64", "probe.interval=1ms", "bed.twins=false",
             f"pairs.{LONG}"),
        ),
        Disturbed(
            "emulator-delay", "emulate", "trials.rounds", 8,
            ("stream.pipe=delay 2ms,delay 5ms", "trials.duration=200ms", "trials.qualify=false", "bed.twins=false",
             f"trials.{LONG}"),
        ),
        Disturbed(
            "one-way", "bridge", "trials.rounds", 6,
            ("stream.interval=400us", "stream.payload_bytes=64", "stream.schedule=regular", "trials.duration=200ms",
             "trials.qualify=false", "bed.twins=false", f"trials.{LONG}"),
        ),
        Disturbed(
            "bufferbloat", "emulate", "load.rounds", 2,
            (EMULATED, "load.idle=200ms", "load.start_up=200ms", "load.duration=400ms", f"load.{LONG}"),
        ),
        Disturbed(
            "tcp-methodology", "emulate", "windows.rounds", 3,
            (EMULATED, "windows.window=1.0", "windows.connections=1", "windows.idle=200ms", "windows.train=100ms",
             "windows.start_up=200ms", "windows.duration=400ms", f"windows.{LONG}"),
        ),
        Disturbed(
            "rfc2544", "bridge", "search.repetitions", 2,
            ("search.tests=throughput,latency", "search.max_rate=5kpps", "search.at_most=3600s", "search.width=0.5",
             "search.goals=0.5", "search.initial_duration=100ms", "search.duration=200ms",
             "search.duration_sum=200ms", "search.latency_duration=400ms", "search.latency_repetitions=1",
             "stream.frame_bytes=128"),
        ),
        Disturbed(
            "bridge-modes", "bridge", "trials.rounds", 6,
            ("stream.rate=1Mbit/s at 64", "stream.payload_bytes=64", "trials.duration=200ms", "bed.twins=false",
             "trials.qualify=false", f"trials.{LONG}"),
        ),
    )
}  # fmt: skip
"""Probes, an emulator, streams, loads of TCP, timed searches, taps: by name."""

DISK = "size=32m"
"""More than any run here records; a flood, which qualifies a tester whose trials keep packets, would fill it."""


GATHERING = """
import sys
from sojourn.cli import main
from sojourn.conduct import loop
sys.argv[0], loop.GATHER_SECONDS = "sojourn", 1.0
main()
"""
"""A run that fetches its records every second, so that some are closed before a fault: runs here take half a minute."""


class Going:
    """A run under way at the desk, on a bench of all studies here unless another is given."""

    def __init__(self, hosts: Hosts, out: str, study: str, *sets: str, bed: Path | None = None) -> None:
        self.hosts = hosts
        self.of = STUDIES[study]
        self.folder = RunFolder(hosts.folder / out)
        given = (*self.of.sets, *sleeping_ends(), *sets)
        argv = [
            "run",
            study,
            "--quick",
            *(word for one in given for word in ("--set", one)),
            "--bed",
            str(bed or hosts.bed(paths_of(self.of.device))),
            "--out",
            out,
            "--no-report",
            "--no-history",
        ]
        self.process = subprocess.Popen(
            hosts.command(sys.executable, "-c", GATHERING, *argv), cwd=hosts.folder, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def await_blocks(self, count: int) -> None:
        """Wait until so many blocks are measured, and the next one has begun."""
        end = time.monotonic() + 240
        while sum(entry.get("event") == BEGUN for entry in self.log) <= count:
            if self.process.poll() is not None:
                raise AssertionError(self.process.communicate())
            assert time.monotonic() < end
            time.sleep(0.02)

    def end(self, seconds: float = 240) -> tuple[int, str]:
        """Its status, and what it said on standard error."""
        _, said = self.process.communicate(timeout=seconds)
        return self.process.returncode, said

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it logged so far."""
        return read_log(self.folder.log)

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return load_plan(str(self.folder.plan))

    @property
    def closed(self) -> set[int]:
        """The blocks that are here, whole."""
        whole: set[int] = load(self.plan.study.method, "measure").MEASURE.whole(self.folder, self.plan)
        return whole

    def resume(self) -> list[dict[str, Any]]:
        """Go on with it to its end; gives its results."""
        argv = ["run", "--resume", self.folder.path.name, "--no-history", "--no-report"]
        done = self.hosts.sojourn(*argv)
        assert done.returncode in (0, 4), done.stderr
        assert self.log[-1]["event"] == "finished", done.stderr
        found: list[dict[str, Any]] = json.loads(self.folder.results.read_text())
        return found


def unrecorded(folder: RunFolder) -> list[str]:
    """What of the trials that count was recorded at some host, and is not here."""
    log = read_log(folder.log)
    lost = lost_blocks(log)
    packets, arrivals, lines = (rows_of_blocks(folder.records, name) for name in ("packets", "arrivals", "clock_lines"))
    found = []
    for part, entry in in_parts(log, "emulator"):
        arrived = max(one["arrived"] for one in entry["summary"]["summary"]["pipes"])
        if packets and (entry["block"], part) not in lost and packets.get((part, entry["block"]), 0) < arrived:
            found.append(f"packets of block {entry['block']} in part {part}")
    for part, entry in in_parts(log, "taps"):
        if (entry["block"], part) not in lost and not list((folder.records / entry["records"]).rglob("*.arrow")):
            found.append(f"taps of block {entry['block']} in part {part}")
    for part, entry in in_parts(log, "search-result"):
        if entry["test"] == "latency" and (entry["search"], part) not in lost:
            found += [
                f"frames of block {block} in part {part}"
                for block in entry["trials"]
                if (part, block) not in arrivals or (part, block) not in lines
            ]
    return found


def paths_of(device: str) -> str:
    """The direct path and that of a device, on the bench of all studies here."""
    _, words = cabled(["bridge", "emulate"])
    sections = words.split("[paths.")
    return "".join(f"[paths.{one}" for one in sections if one.startswith(('"direct"', f'"{device}"')))


def first_cable(device: str) -> int:
    """The cable from A to a device."""
    return {"bridge": 1, "emulate": 3}[device]


def boot(going: Going, name: str) -> None:
    """A host is booted again."""
    going.hosts.reboot(name)


def pull(going: Going, name: str) -> None:
    """The cable at A of a path is out for two seconds: the direct one, or the device's."""
    going.hosts.pull(0 if name == "b" else first_cable(going.of.device), 2)


def end_sessions(going: Going, name: str) -> None:
    """Every SSH session of a host is ended."""
    script = "ps -eo pid,args | sed -n 's/^ *\\([0-9]*\\) sshd: [^[]*$/\\1/p'"
    sessions = going.hosts.at(name, "sh", "-c", f"{script} | xargs -r kill -KILL 2>/dev/null; true")
    assert not sessions.strip(), sessions


def fill(going: Going, name: str) -> None:
    """A host's disk, on which records are, is full; never the machine's own, where `small_disk` was not."""
    going.hosts.at(name, "sh", "-c", "dd if=/dev/zero of=/var/tmp/filled bs=64k count=1024 2>/dev/null; true")
    free = int(going.hosts.at(name, "stat", "-f", "-c", "%a", "/var/tmp"))
    assert free == 0, f"{name}'s disk has {free} blocks left: it was booted without `small_disk`"


def kill(going: Going, name: str) -> None:
    """The run is killed."""
    del name
    going.process.send_signal(signal.SIGKILL)


FAULTS: dict[str, Callable[[Going, str], None]] = {
    "boot": boot,
    "pull": pull,
    "end_sessions": end_sessions,
    "fill": fill,
    "kill": kill,
}


def small_disk(hosts: Hosts) -> None:
    """Give every host's `/var/tmp` so little room that it is soon filled; until it is booted again."""
    for name in hosts.names:
        script = f"mountpoint -q /var/tmp/ && umount /var/tmp; mount -n -t tmpfs -o {DISK} own /var/tmp"
        hosts.at(name, "sh", "-c", script)


def room_again(hosts: Hosts) -> None:
    """Empty the disks of what filled them."""
    for name in hosts.names:
        hosts.at(name, "rm", "-f", "/var/tmp/filled")
