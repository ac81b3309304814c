"""Write a file completely or not at all: under an unpredictable name, synced, and renamed. Continue a log.

Others may have write access to the folder: a link in the file's place is replaced and not followed, and none can be put
in the draft's. The content, and the right to write it, are not decided here.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

DESCRIPTORS = Path("/proc/self/fd")
DEVICES = Path("/dev")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield the draft of a file, which replaces `path` when closed: complete, of mode 0600.

    Under sudo it belongs to the calling user, if that user could have made it. After an error, on a full disk and after
    a loss of power the old file stays. Raises RequestError if `path` is a device, a socket or a pipe, and OSError with
    its name if it cannot be written.
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
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)  # the draft has none
        raise
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def _draft(path: Path) -> tuple[int, Path | None]:
    """Open a new file of mode 0600 in the same folder.

    It has no name, so that a killed writer leaves nothing, or a name if the file system does not support that.
    """
    with suppress(OSError):
        if DESCRIPTORS.is_dir():
            return os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), None
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name[:200]}.", dir=path.parent)  # O_EXCL, O_NOFOLLOW, 0600
    return descriptor, Path(draft)


def _named(descriptor: int, path: Path) -> Path:
    """Give an unnamed file an unpredictable name in the same folder."""
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:  # linkat() into an open folder follows the link to the open file
        os.link(DESCRIPTORS / str(descriptor), draft.name, dst_dir_fd=folder)
    finally:
        os.close(folder)
    return draft


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_table(path: Path, frame: pl.DataFrame) -> None:
    """Write a table as Parquet, completely or not at all. On a full disk raises OSError, which polars does not."""
    octets = io.BytesIO()
    frame.write_parquet(octets, compression="zstd")
    write_whole(path, octets.getvalue())


def write_for_all(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, with the mode that new files have: for other programs and users."""
    with whole_file(path) as file:
        file.write(content)
        os.fchmod(file.fileno(), 0o666 & ~umask())


def umask() -> int:
    """Return the umask of this process; no call reads it without setting it."""
    now = os.umask(0o077)
    os.umask(now)
    return now


def continued(path: Path) -> TextIO:
    """Open a log to add lines to it; the first one begins on a new line. Raises RequestError for a link."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RequestError(f"{path} is a link, which nothing is written through: remove it") from error
        raise
    file = os.fdopen(descriptor, "a", encoding="utf-8")
    end = os.fstat(descriptor).st_size
    if end and os.pread(descriptor, 1, end - 1) != b"\n":
        file.write("\n")
    return file


def refuse_special(path: Path) -> None:
    """Refuse a path that is not an ordinary file: /dev/null and /dev/stdout too, which root would replace."""
    with suppress(FileNotFoundError):
        kind = path.lstat().st_mode
        if leads_to_a_stream(path) or not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
            raise RequestError(f"{path} is no ordinary file: give another name")


def leads_to_a_stream(path: Path) -> bool:
    """Return whether a path is a pipe or a character device, or a link to a descriptor, as /dev/stdout.

    Of other links, which anybody may have made, it does not matter where they lead.
    """
    with suppress(FileNotFoundError):
        kind = path.lstat().st_mode
        is_link = stat.S_ISLNK(kind) and path.parent.absolute() in {DEVICES, DEVICES / "fd", DESCRIPTORS}
        return stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or is_link
    return False


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder against loss of power; a folder without read access cannot be synced."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def give_to_caller(descriptor: int, folder: Path) -> None:
    """Give a file that root makes under sudo to the calling user, if the folder is that user's or writable for all."""
    with suppress(KeyError, ValueError, OSError):
        user, group = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
        about = folder.stat()
        if os.geteuid() == 0 and (about.st_uid == user or about.st_mode & stat.S_IWOTH):
            os.fchown(descriptor, user, group)
