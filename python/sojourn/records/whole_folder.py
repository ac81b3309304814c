"""A folder that is replaced whole, or not at all: it is written beside its place, and takes it in one step.

Readers find what was there or what is there now, never a part of both. What a killed writer left beside is removed by
the next one. A folder may be somebody else's: a link in its place is replaced and not followed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import secrets
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

CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What a file system, or a kernel, says that cannot exchange two names."""

DRAFT = "draft-"


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
        os.close(descriptor)
        _remove(draft)


def refuse_link(folder: Path) -> None:
    """Refuse to write in a folder that is a link: what it leads to is not the run's."""
    if folder.is_symlink():
        raise RequestError(f"{folder} is a link: remove it, for nothing is written through links")


def remove_drafts(path: Path) -> None:
    """Remove what killed writers of this folder left: nobody holds a lock on it."""
    ours = re.compile(re.escape(f".{path.name}.{DRAFT}") + r"\w{8}")  # as mkdtemp makes them
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
    """A folder under a name that nobody can foresee, and the lock that says that its writer is alive."""
    while True:
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.{DRAFT}", dir=path.parent))
        try:
            descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # another writer took it for what was left
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if draft.is_dir():
            os.fchmod(descriptor, 0o777 & ~_umask())
            return draft, descriptor
        os.close(descriptor)  # another writer took it for what was left


def _umask() -> int:
    """What new files of this process are not allowed; there is no call that only tells it."""
    now = os.umask(0o077)
    os.umask(now)
    return now


def _put(draft: Path, path: Path) -> None:
    """Give a draft its name; what had it before has the draft's then."""
    if not os.path.lexists(path):
        try:
            draft.rename(path)
        except OSError:
            if not os.path.lexists(path):
                raise
        else:
            return
    if not _exchange(draft, path):  # another writer's is there by now, or what was there
        _swap(draft, path)


def _swap(draft: Path, path: Path) -> None:
    """The same where names cannot be exchanged: for a moment nothing has the name, and a killed writer leaves it so."""
    aside = path.with_name(f".{path.name}.before-{secrets.token_hex(8)}")
    path.rename(aside)
    try:
        draft.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    aside.rename(draft)


def _exchange(one: Path, other: Path) -> bool:
    """Whether both names were exchanged; not where that cannot be done here. Raises OSError where it failed."""
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
    """What is there; another writer may be removing it, too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
