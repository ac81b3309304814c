"""Faults of real hosts while a run goes on, by name: a boot, a pulled cable, ended sessions, a full disk, a dead run.

Each is done to hosts that are patched. What a run should make of them is for the tests to say.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from sojourn.conduct.blocks import probed_blocks
from sojourn.records import RunFolder
from sojourn.records.log import read_log
from tests.net.real_hosts import SOJOURN, Hosts

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

PLAN = ["bridge-latency", "--quick", "--set", "pairs.probes_per_block=200", "--set", "probe.icmp_bytes=64",
        "--set", "probe.interval=1ms", "--set", "bed.twins=false"]  # fmt: skip
"""Blocks of a fifth of a second, three paths twice a round."""
ROUNDS = "pairs.rounds=8"

DISK = "size=2m"


class Going:
    """A run under way at the desk."""

    def __init__(self, hosts: Hosts, out: str, *sets: str) -> None:
        self.hosts = hosts
        self.folder = RunFolder(hosts.folder / out)
        argv = [
            "run",
            *PLAN,
            *(word for one in sets for word in ("--set", one)),
            "--bed",
            str(hosts.bed()),
            "--out",
            out,
            "--no-report",
            "--no-history",
        ]
        self.process = subprocess.Popen(
            hosts.command(SOJOURN, *argv), cwd=hosts.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def await_blocks(self, count: int) -> None:
        """Wait until so many blocks are measured."""
        end = time.monotonic() + 240
        while sum(entry.get("event") == "block" for entry in self.log) < count:
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
    def closed(self) -> set[int]:
        """The blocks that are here, whole."""
        return probed_blocks(self.folder)

    def resume(self) -> list[dict[str, Any]]:
        """Go on with it to its end; gives its results."""
        argv = ["run", "--resume", self.folder.path.name, "--no-history", "--no-report"]
        done = self.hosts.sojourn(*argv)
        assert done.returncode in (0, 4), done.stderr
        assert self.log[-1]["event"] == "finished", done.stderr
        found: list[dict[str, Any]] = json.loads(self.folder.results.read_text())
        return found


def boot(going: Going, name: str) -> None:
    """A host is booted again."""
    going.hosts.reboot(name)


def pull(going: Going, name: str) -> None:
    """The cable at A of a path is out for two seconds: the direct one, or the device's."""
    going.hosts.pull(0 if name == "b" else 1, 2)


def end_sessions(going: Going, name: str) -> None:
    """Every SSH session of a host is ended."""
    script = "ps -eo pid,args | sed -n 's/^ *\\([0-9]*\\) sshd: [^[]*$/\\1/p'"
    sessions = going.hosts.at(name, "sh", "-c", f"{script} | xargs -r kill -KILL 2>/dev/null; true")
    assert not sessions.strip(), sessions


def fill(going: Going, name: str) -> None:
    """A's disk, on which records are, is full; never the machine's own, which is there where `small_disk` is not."""
    del name
    going.hosts.at("a", "sh", "-c", "dd if=/dev/zero of=/var/tmp/filled bs=64k count=64 2>/dev/null; true")
    free = int(going.hosts.at("a", "stat", "-f", "-c", "%a", "/var/tmp"))
    assert free == 0, f"A's disk has {free} blocks left: it was booted without `small_disk`"


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
    """Give A's `/var/tmp` so little room that it is soon filled; until A is booted again."""
    hosts.at("a", "sh", "-c", f"mountpoint -q /var/tmp/ && umount /var/tmp; mount -n -t tmpfs -o {DISK} own /var/tmp")


def room_again(hosts: Hosts) -> None:
    """Empty A's disk of what filled it."""
    hosts.at("a", "rm", "-f", "/var/tmp/filled")
