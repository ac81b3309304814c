"""A control group with little memory, in which the kernel kills for want of it: only what the tests put there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.net.busy_machine import await_that

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM_BYTES = 32 << 20
"""More than an interpreter takes, and less than `EATER` wants."""

EATER = """
import os, sys
with open(sys.argv[1], "w") as members:
    members.write("0")
eaten = os.memfd_create("eaten")
while True:
    os.write(eaten, bytes(1 << 20))
"""
"""Takes memory of its group for ever, in a file: the kernel counts none of it as the process's own when it chooses."""


@dataclass(frozen=True)
class Group:
    """The folder of a control group, and its files, which the two versions call differently."""

    folder: Path
    limit: str
    counts: str

    def killed(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        found = re.search(r"^oom_kill (\d+)$", (self.folder / self.counts).read_text(), re.MULTILINE)
        assert found, "this kernel counts them"
        return int(found.group(1))


@contextmanager
def little_memory() -> Iterator[Group]:
    """Such a group; skipped, with a reason, where nobody can make one."""
    try:
        group = _group()
        group.folder.mkdir()
        (group.folder / group.limit).write_text(str(ROOM_BYTES))
    except OSError as error:
        pytest.skip(f"no control group with a limit of memory can be made here: {error}")
    try:
        yield group
    finally:
        await_that(lambda: not (group.folder / "cgroup.procs").read_text(), "the group is empty")
        group.folder.rmdir()


def kill_for_memory(pid: int) -> None:
    """Have the kernel kill this process, and nothing else, for want of memory."""
    with little_memory() as group:
        members = group.folder / "cgroup.procs"
        members.write_text(str(pid))
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # the kernel's first choice in its group
        eater = subprocess.Popen([sys.executable, "-c", EATER, str(members)], stderr=subprocess.DEVNULL)
        try:
            await_that(lambda: not _runs(pid), "the kernel kills for want of memory")
            # That process, and then perhaps the other one, which goes on taking.
            assert 1 <= group.killed() <= 2
        finally:
            eater.kill()
            eater.wait()


def _runs(pid: int) -> bool:
    """Whether it has not ended; nobody may have asked how it did."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _group() -> Group:
    """One of the version whose hierarchy has the controller of memory."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    name = f"sojourn-memory-{os.getpid()}"
    for root, kind, options in ((one.split()[4], *one.split(" - ")[1].split()[::2]) for one in mounts):
        enabled = Path(root, "cgroup.subtree_control")
        if kind == "cgroup2" and enabled.is_file() and "memory" in enabled.read_text().split():
            return Group(Path(root, name), "memory.max", "memory.events")
        if kind == "cgroup" and "memory" in options.split(","):
            return Group(Path(root, name), "memory.limit_in_bytes", "memory.oom_control")
    raise FileNotFoundError("no hierarchy has the controller of memory")
