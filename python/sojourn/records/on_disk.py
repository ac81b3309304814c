"""Sync the files that programs write into folders, before they are reported as present."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from sojourn.records.whole_file import sync_folder


class OnDisk:
    """Folders, and what of them is synced already: a long run has many files, and few of them still grow."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()
        self._synced: dict[Path, tuple[int, int]] = {}

    def add(self, folder: Path) -> None:
        """Add a folder for `sync`."""
        self._folders.add(folder)

    def sync(self) -> None:
        """Sync all present files of the folders, with their names; folders and files may be gone.

        Raises OSError if the disk reports a failure.
        """
        for folder in self._folders:
            for path, _, files in os.walk(folder):
                changed = [one for one in files if self._sync_file(Path(path, one))]
                if changed or Path(path) not in self._synced:
                    with suppress(FileNotFoundError):
                        sync_folder(Path(path))
                    self._synced[Path(path)] = (0, 0)

    def _sync_file(self, path: Path) -> bool:
        """Sync a file; return whether it has changed since the last sync."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # removed or unreadable: a program's own, such as a socket
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
