"""A folder that is replaced whole, or not at all: it is written beside its place, and takes it in one step.

Readers find what was there or what is there now, never a part of both. What a killed writer left beside is removed by
the next one. A folder may be somebody else's: a link in its place is replaced and not followed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.errors import RequestError
from sojourn.records.whole_file import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Of renameat2(2)."""


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """The draft of a folder, which is at `path` afterwards, in the place of all that was there.

    After an error, and when its writer is killed, what was there stays.
    """
    remove_drafts(path)
    draft, descriptor = _locked(path)
    try:
        yield draft
        sync_folder(draft)
        _put(draft, path)
        sync_folder(path.parent)
    finally:
        _remove(draft)
        os.close(descriptor)


def refuse_link(folder: Path) -> None:
    """Refuse to write in a folder that is a link: what it leads to is not the run's."""
    if folder.is_symlink():
        raise RequestError(f"{folder} is a link: remove it, for nothing is written through links")


def remove_drafts(path: Path) -> None:
    """Remove what killed writers of this folder left: nobody holds a lock on it."""
    for one in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            descriptor = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(one)
            finally:
                os.close(descriptor)


def _locked(path: Path) -> tuple[Path, int]:
    """A folder under a name that nobody can foresee, and the lock that says that its writer is alive."""
    while True:
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if draft.is_dir():
            return draft, descriptor
        os.close(descriptor)  # another writer took it for what was left


def _put(draft: Path, path: Path) -> None:
    """Give a draft its name; what had it before has the draft's then, or is gone."""
    if not os.path.lexists(path):
        draft.rename(path)
    elif not _exchange(draft, path):  # a file system that cannot: for a moment there is none
        _remove(path)
        draft.rename(path)


def _exchange(one: Path, other: Path) -> bool:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return bool(call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
