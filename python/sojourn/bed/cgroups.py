"""Cgroups of a bed's hosts: a folder for each host in the unified hierarchy, and the one of the bed above them.

Made only where a bed is asked for them, so that programs in the kernel can be attached to one end of a connection: at
the root they would see both. No controller is enabled. A bed's folder carries its mark in its name, so that one that a
dead run left can be distinguished from a live one's. Needs the right to write there, which a plain user has not.
"""

from __future__ import annotations

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


def unified_root(mounts: str | None = None) -> Path:
    """Where the unified (v2) hierarchy is mounted, by the mount table; raises MachineError where it is not."""
    for line in (Path("/proc/self/mountinfo").read_text() if mounts is None else mounts).splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            return Path(_unescaped(before.split(" ")[4]))
    raise MachineError("no unified cgroup hierarchy is mounted: mount -t cgroup2 none /mnt, with a folder /mnt")


def folder_of(mark: Mark) -> Path:
    """The folder of a bed, whether it is there or not."""
    return unified_root() / f"{_PREFIX}{mark}"


def make(folder: Path, hosts: Iterable[str]) -> None:
    """Makes the folder of a bed and one for each host."""
    try:
        folder.mkdir()
        for host in hosts:
            (folder / host).mkdir()
    except OSError as error:
        remove(folder)
        raise MachineError(f"{folder} cannot be made ({error.strerror})") from error


def remove(folder: Path) -> bool:
    """Ends whatever runs in a bed's cgroups and removes them; whether nothing is left."""
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
    """Every bed's folder on this machine, with its mark; nothing where there is no unified hierarchy."""
    with suppress(MachineError, OSError):
        for folder in sorted(unified_root().glob(f"{_PREFIX}*")):
            mark = Mark.parse(folder.name.removeprefix(_PREFIX))
            if mark is not None and folder.is_dir():
                yield folder, mark


def is_of_others(folder: Path) -> bool:
    """Whether a process of another process namespace runs in a bed's cgroups: its mark's numbers mean nothing here."""
    ours = Path("/proc/self/ns/pid").readlink()
    for members in folder.glob("*/cgroup.procs"):
        with suppress(OSError):
            for pid in members.read_text().split():
                if pid == "0":  # what is not to be seen from here
                    return True
                with suppress(OSError):
                    if Path(f"/proc/{pid}/ns/pid").readlink() != ours:
                        return True
    return False


# What the holder does with the folder that is its first argument, where it has one: the same in the shell's words.
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
    """A path as the mount table writes it: blanks are octal there."""
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
