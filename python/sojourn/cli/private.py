"""Files of a run belong to its owner only, under sudo to its caller: they contain addresses and command lines."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sojourn.caller import sudo_caller
from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OTHERS = 0o077


@contextmanager
def private_files() -> Iterator[None]:
    """Make files of mode 0600 and folders of mode 0700 within the block, also in programs that are started."""
    before = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def private_run(folder: Path) -> Iterator[None]:
    """Write in a run folder within the block, with the right owner.

    A new folder belongs to sudo's caller in the end; one of the caller's belongs to root meanwhile; others keep their
    owner. While root writes in it, nobody else can redirect its writing. Raises RequestError if it already contains a
    link, or something of another user.
    """
    caller = sudo_caller()
    with private_files():
        if caller is None or (os.path.lexists(folder) and not _is_of(folder, caller[0])):
            yield
            return
        if os.path.lexists(folder):
            _take(folder, caller)
        try:
            yield
        finally:
            _hand_over(folder, caller)


def _take(folder: Path, caller: tuple[int, int]) -> None:
    """Give the caller's folder to root, its own folders first: then nobody can add to what is inspected."""
    _refuse(folder, lambda found: stat.S_ISDIR(found.st_mode) and found.st_uid != caller[0])
    _own_folders(folder, (0, 0))
    try:
        _refuse(folder, lambda found: _is_link(found) or found.st_uid not in {0, caller[0]} or _is_roots_file(found))
    except RequestError:
        _own_folders(folder, caller)
        raise


def _refuse(folder: Path, is_wrong: Callable[[os.stat_result], bool]) -> None:
    for path, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            if is_wrong(os.stat(name, dir_fd=descriptor, follow_symlinks=False)):
                raise RequestError(
                    f"{path}/{name} is a link or another user's, in a folder that root is to write in: remove it, or "
                    "run this without sudo"
                )


def _own_folders(folder: Path, owner: tuple[int, int]) -> None:
    os.chown(folder, *owner, follow_symlinks=False)
    for _, _, _, descriptor in os.fwalk(folder):
        os.fchown(descriptor, *owner)


def _is_link(found: os.stat_result) -> bool:
    return stat.S_ISLNK(found.st_mode) or (not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1)


def _is_roots_file(found: os.stat_result) -> bool:
    return found.st_uid == 0 and not stat.S_ISDIR(found.st_mode)


def _is_of(folder: Path, user: int) -> bool:
    """Return whether it is a folder of this user, and no link."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user


def _hand_over(folder: Path, caller: tuple[int, int]) -> None:
    """Give a run folder, and one above it that was made for it, to who called sudo; no link is followed or given."""
    if not folder.is_dir() or folder.is_symlink():
        return
    above = folder.absolute().parent
    if above.stat().st_uid == 0 and above.parent.stat().st_uid == caller[0] and len(list(above.iterdir())) == 1:
        os.chown(above, *caller, follow_symlinks=False)
    for _, folders, files, descriptor in os.fwalk(folder, topdown=False):
        for name in (*folders, *files):
            if not _is_link(os.stat(name, dir_fd=descriptor, follow_symlinks=False)):
                os.chown(name, *caller, dir_fd=descriptor, follow_symlinks=False)
    os.chown(folder, *caller, follow_symlinks=False)
