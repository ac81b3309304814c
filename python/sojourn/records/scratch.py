"""Temporary folders named after the process that made them, so that those of killed processes can be removed.

A name is valid within one PID namespace, as marks of beds are (bed/state.py); `sojourn bed clean` removes the folders.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_SHELL = (
    "$(printf %x-%x-%x $(($(readlink /proc/self/ns/pid | tr -dc 0-9) & 0xfffffff)) $$ "
    "$(sed 's/.*)//' /proc/$$/stat | cut -d' ' -f21))"
)
"""The process in such a name, as a shell gives it: hexadecimal, since a socket's path has 107 characters at most."""

SHARED = Path("/tmp")
"""Where root makes folders in which another user is to work, whatever TMPDIR root has."""

_NAME = re.compile(r"sojourn-[a-z-]+-([0-9a-f]+)-([0-9a-f]+)-([0-9a-f]+)-\w+")
_NAMESPACE_BITS = 0xFFFFFFF
"""The kernel counts namespaces from 0xf0000000; the first one of PIDs has 0xeffffffc."""


@contextmanager
def scratch(what: str, folder: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder, and remove it after the block."""
    started = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    prefix = f"sojourn-{what}-{_pid_namespace()}-{os.getpid():x}-{int(started):x}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as name:
        yield Path(name)


def left(folder: Path | None = None) -> Iterator[tuple[Path, int, int]]:
    """Yield this user's folders of this PID namespace, each with its process: number, and start time in ticks."""
    usual = {Path(tempfile.gettempdir()), *([SHARED] if os.geteuid() == 0 else [])}
    places = usual if folder is None else {folder}
    for path in sorted(one for place in places for one in place.glob("sojourn-*")):
        found = _NAME.fullmatch(path.name)
        with suppress(OSError):
            about = path.lstat()
            if found and found[1] == _pid_namespace() and stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():
                yield path, int(found[2], 16), int(found[3], 16)


def _pid_namespace() -> str:
    number = "".join(filter(str.isdigit, str(Path("/proc/self/ns/pid").readlink())))
    return f"{int(number) & _NAMESPACE_BITS:x}"
