"""Cgroups of a bed's hosts: one folder for the bed in the unified hierarchy, with one folder for each host.

Made only on request, so that BPF programs can be attached to one end of a connection: at the root they would see both
ends. No controller is enabled. A bed's folder has its mark in its name, which distinguishes a dead run's folder from a
live one's. It needs write access there, which an unprivileged user lacks.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.bed.state import Mark
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PREFIX = "sojourn-bed-"
_PATIENCE_SECONDS = 1.0


def unified_root(mounts: bytes | None = None) -> Path:
    """Return the mount point of the unified (v2) hierarchy; raises MachineError if there is none in the mount table."""
    found = Path("/proc/self/mountinfo").read_bytes() if mounts is None else mounts
    for line in found.split(b"\n"):  # any bytes may name a mount, and only a line feed ends it
        before, _, after = line.partition(b" - ")
        if after.split(b" ", 1)[0] == b"cgroup2":
            return Path(_unescaped(os.fsdecode(before.split(b" ")[4])))
    raise MachineError("no unified cgroup hierarchy is mounted: mount -t cgroup2 none /mnt, with a folder /mnt")


def folder_of(mark: Mark) -> Path:
    """Return the folder of a bed, whether or not it exists."""
    return unified_root() / f"{_PREFIX}{mark}"


def make(folder: Path, hosts: Iterable[str]) -> None:
    """Make the folder of a bed and one for each host."""
    try:
        folder.mkdir()
        for host in hosts:
            (folder / host).mkdir()
    except OSError as error:
        remove(folder)
        raise MachineError(f"{folder} cannot be made ({error.strerror})") from error


def remove(folder: Path) -> bool:
    """Kill everything in a bed's cgroups and remove them; return whether nothing is left."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while folder.is_dir():
        with suppress(OSError):
            for host in [one for one in folder.iterdir() if one.is_dir()]:
                with suppress(OSError):
                    (host / "cgroup.kill").write_text("1")
                with suppress(OSError):
                    host.rmdir()
            folder.rmdir()
        if time.monotonic() > end:
            return not folder.is_dir()
        time.sleep(0.002)
    return True


def left() -> Iterator[tuple[Path, Mark]]:
    """Return every bed's folder on this machine, with its mark; none without a unified hierarchy."""
    with suppress(MachineError, OSError):
        for folder in sorted(unified_root().glob(f"{_PREFIX}*")):
            mark = Mark.parse(folder.name.removeprefix(_PREFIX))
            if mark is not None and folder.is_dir():
                yield folder, mark


def is_of_others(folder: Path) -> bool:
    """Return whether a process of another PID namespace runs in a bed's cgroups: PIDs in its mark mean nothing here."""
    ours = Path("/proc/self/ns/pid").readlink()
    for members in folder.glob("*/cgroup.procs"):
        with suppress(OSError):
            for pid in members.read_text().split():
                if pid == "0":  # a process that is not visible in this PID namespace
                    return True
                with suppress(OSError):
                    if Path(f"/proc/{pid}/ns/pid").readlink() != ours:
                        return True
    return False


# The holder's cleanup of the folder in its first argument, if it has one: `remove` as a shell script.
HOLDERS_LAST_ACT = """
if [ -n "$1" ]; then
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -d "$1" ] || break
        for host in "$1"/*/; do
            [ -d "$host" ] || continue
            echo 1 > "$host/cgroup.kill"
            rmdir "$host"
        done
        rmdir "$1" && break
        sleep 0.01
    done 2>/dev/null
fi
"""


def _unescaped(path: str) -> str:
    """Decode the octal escapes of a path in the mount table."""
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
