"""A folder of runs: which there are, and of each whether it goes on, how far it is, and its verdict.

A run is read again only where its log or its verdict has changed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sojourn.records.decode import json_value
from sojourn.records.folder import RunFolder
from sojourn.watch.follow import Follower

if TYPE_CHECKING:
    from pathlib import Path

MOST = 500
"""Runs that are listed, the latest first."""


def is_run(path: Path) -> bool:
    """Whether there is a run folder."""
    folder = RunFolder(path)
    return folder.plan.is_file() and folder.records.is_dir()


class Runs:
    """The runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[float, float], dict[str, Any]]] = {}

    def names(self) -> list[str]:
        """The names of its run folders, the latest first; links are not followed out of it."""
        try:
            found = [one for one in self.folder.iterdir() if not one.is_symlink() and is_run(one)]
        except OSError:
            return []
        return [one.name for one in sorted(found, key=lambda one: (_changed(RunFolder(one).log), one.name))[::-1]][
            :MOST
        ]

    def told(self) -> list[dict[str, Any]]:
        """A line for each."""
        return [self._line(name) for name in self.names()]

    def _line(self, name: str) -> dict[str, Any]:
        folder = RunFolder(self.folder / name)
        changed = (_changed(folder.log), _changed(folder.verdict))
        if name not in self._known or self._known[name][0] != changed:
            self._known[name] = (changed, line_of(folder))
        return self._known[name][1]


def line_of(folder: RunFolder) -> dict[str, Any]:
    """What is said of one run in a list."""
    follower, verdict = Follower(folder.log), {}
    while follower.behind and follower.poll():
        pass
    with suppress(OSError, ValueError):
        found = json_value(folder.verdict.read_bytes())
        verdict = found if isinstance(found, dict) else {}
    return {
        "name": folder.path.name, "study": follower.study, "state": follower.state, "done": len(follower.done),
        "total": follower.total, "changed": _changed(folder.log), "verdict": str(verdict.get("verdict", "")),
        "sentence": str(verdict.get("sentence", "")),
    }  # fmt: skip


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
