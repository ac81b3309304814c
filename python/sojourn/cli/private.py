"""Files of a run belong to its owner only, under sudo to its caller: they contain addresses and command lines."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sojourn.caller import sudo_caller
from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sojourn.caller import Caller

OTHERS = 0o077
COPY = "cp -r --no-preserve=ownership RUN COPY"
"""What root can do with a run that it may not write in, once it has read its plan."""


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

    A new folder belongs to sudo's caller in the end; one of the caller's belongs to root meanwhile; root's stays its
    own. While root writes in it, nobody else can redirect its writing. An empty folder of ours becomes private. Raises
    RequestError if an empty one belongs to another user who is not root, or everybody can replace what is in one; and
    if root is to write in a folder of another user, whose plan may name programs, in one that another user can exchange
    or write in, or in one with a link or something of another user.
    """
    caller = sudo_caller()
    with private_files():
        is_there = os.path.lexists(folder)
        is_roots = is_there and os.geteuid() == 0 and _owner_of(folder, caller) == 0
        _close(folder, caller)
        if is_roots:
            _refuse_in_roots(folder.resolve(), caller)
        if caller is None or is_roots or (is_there and not folder.is_dir()):
            yield
            return
        if is_there:
            _take(folder, caller)
        try:
            yield
        finally:
            _hand_over(folder, caller)


def _owner_of(folder: Path, caller: Caller | None) -> int:
    """Return the owner of a folder, root or the caller; raises RequestError if another user's, or led to by a link."""
    found = folder.lstat()
    own = {0, caller.uid if caller else 0}
    if stat.S_ISLNK(found.st_mode) and not (found.st_uid == 0 and folder.exists() and folder.stat().st_uid == 0):
        raise RequestError(f"{folder} is a link, in a place where root is to write: name the folder itself")
    if found.st_uid not in own:
        raise RequestError(
            f"{folder} belongs to another user: root would follow its links and run the programs that its plan names. "
            f"Run this as that user, or read the plan and name a copy in a folder of your own: {COPY}"
        )
    *above, (_, itself) = _way(folder)
    # Root without a caller works in the folders of others where it is told to: in a container they are nobody's here.
    for path, one in above if caller else ():
        # In a user namespace the folders of root outside belong to the same number as /.
        if one.st_uid not in own | {Path("/").stat().st_uid} or _is_of_several(one, caller):
            raise RequestError(
                f"{path} can be changed by other users, and leads to {folder}, in which root is to write: name a copy "
                f"in a folder of your own: {COPY}"
            )
    if stat.S_ISDIR(itself.st_mode) and _is_writable(itself) and any(folder.iterdir()):
        raise RequestError(WRITABLE.format(path=folder))
    return found.st_uid


WRITABLE = (
    "{path} can be written by other users, in a place where root is to write: if this is a run, read its plan, then "
    "`chmod -R go-w` its folder"
)


def _close(folder: Path, caller: Caller | None) -> None:
    """Make an existing empty folder of ours private before anything is written in it.

    A sticky folder, the root of a file system (a volume) and, for root, a folder below / are the system's, and stay as
    they are.
    """
    user = os.geteuid()
    own, works_for_others = caller.uid if caller and user == 0 else user, user == 0 and caller is None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # there is none, or none that can be read: whoever writes in it says why
        return
    try:
        found = os.fstat(descriptor)
        if _is_empty(descriptor):
            if found.st_uid == own and not found.st_mode & stat.S_ISVTX and not _is_shared(descriptor, found):
                with suppress(OSError):  # some file systems have no modes of their own
                    os.fchmod(descriptor, 0o700)
                if not _is_empty(descriptor):
                    raise RequestError(f"something was put in {folder} at this moment: name another folder")
            elif found.st_uid not in {own, 0} and not works_for_others:
                raise RequestError(
                    f"{folder} belongs to another user, who can replace what is written there: "
                    "name a folder of your own"
                )
        mode = os.fstat(descriptor).st_mode
        is_open = mode & stat.S_IWOTH and not mode & stat.S_ISVTX
        if is_open and not works_for_others and not (found.st_uid == own and _has_no_modes(descriptor, mode)):
            raise RequestError(
                f"every user can replace what is written in {folder}: `chmod go-w` it, or name another folder"
            )
    finally:
        os.close(descriptor)


def _is_shared(folder: int, found: os.stat_result) -> bool:
    """Return whether a folder is the root of a file system or, for root, one below /."""
    above, root = os.stat("..", dir_fd=folder), Path("/").stat()
    return above.st_dev != found.st_dev or (os.geteuid() == 0 and os.path.samestat(above, root))


def _has_no_modes(folder: int, mode: int) -> bool:
    """Return whether the file system ignores changes of modes."""
    with suppress(OSError):
        os.fchmod(folder, stat.S_IMODE(mode & ~stat.S_IWOTH))
    if os.fstat(folder).st_mode == mode:
        return True
    os.fchmod(folder, stat.S_IMODE(mode))
    return False


def _is_empty(folder: int) -> bool:
    with os.scandir(folder) as entries:
        return not any(entries)


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every folder and link on the way to a path, those to which links lead, too; the path's target is last."""
    at, left = Path("/"), list(reversed(path.absolute().parts[1:]))
    yield at, at.lstat()
    while left:
        name = left.pop()
        at, before = (at.parent if name == ".." else at / name), at
        found = at.lstat()
        yield at, found
        if stat.S_ISLNK(found.st_mode):
            target = at.readlink()
            at = Path("/") if target.is_absolute() else before
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _is_of_several(found: os.stat_result, caller: Caller | None) -> bool:
    """Return whether others than the owner can exchange what is in a folder; the caller's own group is none."""
    mode, groups = found.st_mode, {0, caller.gid if caller else 0}
    if not stat.S_ISDIR(mode) or mode & stat.S_ISVTX:
        return False
    return bool(mode & stat.S_IWOTH) or (bool(mode & stat.S_IWGRP) and found.st_gid not in groups)


def _refuse_in_roots(folder: Path, caller: Caller | None) -> None:
    """Refuse a folder of root's with a link, or with something that is neither root's nor a file of the caller's.

    A run whose way from or to the caller was interrupted by a kill has folders of the caller's, too, which the caller
    cannot reach. Root takes them before it looks.
    """
    told = "remove it, or copy the run without links"
    if caller and not folder.stat().st_mode & OTHERS and os.path.lexists(folder / "plan.toml"):
        own = {0, caller.uid}
        _refuse(folder, lambda found: found.st_uid not in own, told)
        _own_folders(folder, (0, 0))
    _refuse(folder, lambda found: _is_link(found) or not _is_of_root(found, caller), told)


def _take(folder: Path, caller: tuple[int, int]) -> None:
    """Give the caller's folder to root, its own folders first: then nobody can add to what is inspected."""
    told = "remove it, or run this as the user whose folder it is"
    _refuse(folder, lambda found: stat.S_ISDIR(found.st_mode) and found.st_uid != caller[0], told)
    _own_folders(folder, (0, 0))
    own = {0, caller[0]}
    try:
        _refuse(folder, lambda found: _is_link(found) or found.st_uid not in own or _is_roots_file(found), told)
    except RequestError:
        _own_folders(folder, caller)
        raise


def _refuse(folder: Path, is_wrong: Callable[[os.stat_result], bool], told: str) -> None:
    for path, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if is_wrong(found):
                raise RequestError(
                    f"{path}/{name} is a link or another user's, in a folder that root is to write in: {told}"
                )
            if _is_writable(found):
                raise RequestError(WRITABLE.format(path=f"{path}/{name}"))


def _own_folders(folder: Path, owner: tuple[int, int]) -> None:
    os.chown(folder, *owner, follow_symlinks=False)
    for _, _, _, descriptor in os.fwalk(folder):
        os.fchown(descriptor, *owner)


def _is_link(found: os.stat_result) -> bool:
    return stat.S_ISLNK(found.st_mode) or (not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1)


def _is_writable(found: os.stat_result) -> bool:
    return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _is_roots_file(found: os.stat_result) -> bool:
    return found.st_uid == 0 and not stat.S_ISDIR(found.st_mode)


def _is_of_root(found: os.stat_result, caller: Caller | None) -> bool:
    """Return whether it is root's, or a file of the caller's, as a killed run leaves them in a folder that it took."""
    return found.st_uid == 0 or (caller is not None and found.st_uid == caller.uid and not stat.S_ISDIR(found.st_mode))


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
