"""A file that is written whole, or not at all: under a name that nobody can foresee, synced, and renamed to its own.

Others may write in that folder: a link that lies in the file's place is replaced and not followed, and none can be put
in the draft's. Who makes such a file, and what stands in it, is not decided here.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """The draft of a file, which is at `path` when it is closed: whole, of mode 0600; the caller's of sudo where that
    user could have made it.

    After an error, on a full disk and after a loss of power what was there stays. Raises RequestError where a device, a
    socket or a pipe is there, whose place would be taken.
    """
    refuse_special(path)
    descriptor, draft = _draft(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            give_to_caller(file.fileno(), path.parent)
            os.fsync(file.fileno())
            draft = draft or _named(file.fileno(), path)
        draft.replace(path)
        sync_folder(path.parent)
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def _draft(path: Path) -> tuple[int, Path | None]:
    """A new file of mode 0600 beside its place, open: without a name, so that nothing is left of a writer that is
    killed, or with one where the file system has no such files."""
    with suppress(OSError):
        if DESCRIPTORS.is_dir():
            return os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), None
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name[:200]}.", dir=path.parent)  # O_EXCL, O_NOFOLLOW, 0600
    return descriptor, Path(draft)


def _named(descriptor: int, path: Path) -> Path:
    """The name that a file without one gets beside its place; nobody can foresee it."""
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:  # given a folder, it follows the link to the open file
        os.link(DESCRIPTORS / str(descriptor), draft.name, dst_dir_fd=folder)
    finally:
        os.close(folder)
    return draft


def write_whole(path: Path, content: str | bytes) -> None:
    """The same for content that is there already."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def refuse_special(path: Path) -> None:
    """Refuse the place of what is no file: of /dev/null too, which root would replace."""
    with suppress(FileNotFoundError):
        kind = path.lstat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
            raise RequestError(f"{path} is no ordinary file: give another name")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a loss of power; one that may be written and not read cannot be synced."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def give_to_caller(descriptor: int, folder: Path) -> None:
    """Give a file that root makes under sudo to who called, where the folder is that user's or everybody's."""
    with suppress(KeyError, ValueError, OSError):
        user, group = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
        about = folder.stat()
        if os.geteuid() == 0 and (about.st_uid == user or about.st_mode & stat.S_IWOTH):
            os.fchown(descriptor, user, group)
