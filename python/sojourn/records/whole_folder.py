"""Replace a folder completely or not at all: it is written beside its place, and exchanged in one step.

Readers find the old content or the new, never a part of both. What a killed writer left is removed by the next one. A
folder may be controlled by another user: a link in its place is replaced and not followed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.errors import RequestError
from sojourn.records.whole_file import sync_folder, umask

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of renameat2(2)."""

CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""Errors of a file system, or a kernel, that cannot exchange two names."""

DRAFT = "draft-"


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield the draft of a folder, which replaces `path` with all its content afterwards.

    After an error, and when its writer is killed, the old folder stays.
    """
    remove_drafts(path)
    draft, descriptor = _locked(path)
    try:
        yield draft
        sync_folder(draft)
        _put(draft, path)
        sync_folder(path.parent)
    finally:
        os.close(descriptor)
        _remove(draft)


def refuse_link(folder: Path) -> None:
    """Refuse to write in a folder that is a link: its target does not belong to the run."""
    if folder.is_symlink():
        raise RequestError(f"{folder} is a link: remove it, for nothing is written through links")


def remove_drafts(path: Path) -> None:
    """Remove the drafts of killed writers of this folder: those without a lock."""
    ours = re.compile(re.escape(f".{path.name}.{DRAFT}") + r"\w{8}")  # names of mkdtemp
    for one in path.parent.iterdir():
        if not ours.fullmatch(one.name):
            continue
        with suppress(OSError):
            descriptor = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(one)
            finally:
                os.close(descriptor)


def _locked(path: Path) -> tuple[Path, int]:
    """Make a folder with an unpredictable name, and a lock that shows that its writer is alive."""
    while True:
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.{DRAFT}", dir=path.parent))
        try:
            descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # another writer took it for a leftover
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if draft.is_dir():
            mode = 0o777 & ~umask()
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # some file systems have no modes of their own
                with suppress(PermissionError):
                    os.fchmod(descriptor, mode)
            return draft, descriptor
        os.close(descriptor)  # another writer took it for a leftover


def _put(draft: Path, path: Path) -> None:
    """Rename a draft; the old folder gets the draft's name."""
    if not os.path.lexists(path):
        try:
            draft.rename(path)
        except OSError:
            if not os.path.lexists(path):
                raise
        else:
            return
    if not _exchange(draft, path):  # another writer's folder is there by now, or the old one
        _swap(draft, path)


def _swap(draft: Path, path: Path) -> None:
    """Do so where names cannot be exchanged: for a moment, or after a kill for good, nothing has the name."""
    aside = path.with_name(f".{path.name}.before-{secrets.token_hex(8)}")
    path.rename(aside)
    try:
        draft.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    aside.rename(draft)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange both names; return False if that is not supported here. Raises OSError if it failed."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    if (why := ctypes.get_errno()) in CANNOT:
        return False
    raise OSError(why, os.strerror(why), str(other))


def _remove(path: Path) -> None:
    """Remove a path; another writer may be removing it, too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
