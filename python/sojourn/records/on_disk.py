"""Makes what programs wrote into folders outlive a loss of power, before anybody says that it is there."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from sojourn.records.whole_file import sync_folder


class OnDisk:
    """Folders, and what of them is on the disk already: a long run has many files, and few of them still grow."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()
        self._synced: dict[Path, tuple[int, int]] = {}

    def add(self, folder: Path) -> None:
        """A folder that is written into from now on."""
        self._folders.add(folder)

    def sync(self) -> None:
        """All that is in the folders now, its names included; a folder or a file may be gone.

        Raises OSError where the disk says that it could not: then nothing is said to be there.
        """
        for folder in self._folders:
            for path, _, files in os.walk(folder):
                changed = [one for one in files if self._sync_file(Path(path, one))]
                if changed or Path(path) not in self._synced:
                    with suppress(FileNotFoundError):
                        sync_folder(Path(path))
                    self._synced[Path(path)] = (0, 0)

    def _sync_file(self, path: Path) -> bool:
        """Whether it has changed since it was synced last."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # one that is gone or may not be read: a program's own, such as a socket
            return False
        try:
            found = os.fstat(descriptor)
            now = found.st_size, found.st_mtime_ns
            if self._synced.get(path) == now:
                return False
            if stat.S_ISREG(found.st_mode):
                os.fsync(descriptor)
            self._synced[path] = now
            return True
        finally:
            os.close(descriptor)
