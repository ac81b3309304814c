"""What is written of a run is its owner's alone, and its caller's under sudo: it holds addresses and command lines."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHERS = 0o077


@contextmanager
def private_files() -> Iterator[None]:
    """Make files of mode 0600 and folders of mode 0700 meanwhile, programs that are started too."""
    before = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def handed_over(folder: Path) -> Iterator[None]:
    """Give a run folder to who called sudo, however what is done in it ends."""
    try:
        yield
    finally:
        hand_over(folder)


def hand_over(folder: Path) -> None:
    """Give a finished run folder, and one above it that lies in the caller's, to who called sudo; no link is followed.

    Only now: while root writes there, nobody else is to be able to lead its writing elsewhere.
    """
    caller = _caller()
    if caller is None or not folder.is_dir():
        return
    above = folder.absolute().parent
    if above.stat().st_uid == 0 and above.parent.stat().st_uid == caller[0]:
        os.chown(above, *caller, follow_symlinks=False)
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            os.chown(name, *caller, dir_fd=descriptor, follow_symlinks=False)
    os.chown(folder, *caller, follow_symlinks=False)


def _caller() -> tuple[int, int] | None:
    """User and group of who called sudo."""
    try:
        caller = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return caller if os.geteuid() == 0 else None
