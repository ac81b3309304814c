"""A folder of runs: their names, and for each its state, progress and verdict.

A run is read again only if its log or its verdict has changed; of a growing log, only the new part is read.
"""

from __future__ import annotations

import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError
from sojourn.export.running import GOING_ON, Standing
from sojourn.records.decode import MOST_OF_RUN, json_file
from sojourn.records.folder import RunFolder
from sojourn.watch.follow import GOES_ON, Follower

if TYPE_CHECKING:
    from pathlib import Path

MOST = 500
"""The most runs that are listed, the latest first."""

UNREAD = "being read"
"""The state of a run whose log is not completely read yet."""

MOST_FOLLOWED = 16
"""The most runs in progress whose logs are followed: those written last.

Any other log is read from its beginning when it grows, and has no percentiles until then. The same number of logs that
are not completely read yet are kept too.
"""


def is_run(path: Path) -> bool:
    """Return whether there is a run folder."""
    folder = RunFolder(path)
    return folder.plan.is_file() and folder.records.is_dir()


class Runs:
    """The runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[float, float], dict[str, Any]]] = {}
        self._followed: dict[str, Follower] = {}
        """Logs that are still written, or not completely read yet."""

    def names(self) -> list[str]:
        """Return the names of its run folders, the latest first; links out of it are not followed."""
        try:
            found = [one for one in self.folder.iterdir() if not one.is_symlink() and is_run(one)]
        except OSError:
            return []
        return [one.name for one in sorted(found, key=lambda one: (_changed(RunFolder(one).log), one.name))[::-1]][
            :MOST
        ]

    def told(self, within_s: float = inf) -> list[dict[str, Any]]:
        """Return a line for each run; logs that could not be read in time are `UNREAD`, and read the next time."""
        until, names, lines = time.monotonic() + within_s, self.names(), []
        kept = {True: 0, False: 0}
        for name in names:  # the latest runs are read and followed first
            line = self._line(name, until)
            lines.append(line)
            if name in self._followed:
                is_unread = line["state"] == UNREAD
                kept[is_unread] += 1
                if kept[is_unread] > MOST_FOLLOWED:
                    del self._followed[name]
        for name in self._followed.keys() - set(names):
            del self._followed[name]
        return lines

    def standing(self, within_s: float = inf) -> list[Standing]:
        """Return the state of each run for Prometheus; for runs in progress, with results of trials so far.

        Runs whose logs could not be read in time are left out until the next call.
        """
        found = []
        for line in self.told(within_s):
            if line["state"] == UNREAD:
                continue
            state = GOING_ON if line["state"] in GOES_ON else line["state"]
            follower = self._followed.get(line["name"])
            paths = follower.so_far.paths if follower is not None else {}
            figures = (line["done"], line["total"], line["changed"], line["verdict"])
            found.append(Standing(line["name"], line["study"], state, *figures, paths))
        return found

    def _line(self, name: str, until: float) -> dict[str, Any]:
        folder = RunFolder(self.folder / name)
        changed = (_changed(folder.log), _changed(folder.verdict))
        if name in self._known and self._known[name][0] == changed:
            return self._known[name][1]
        follower = self._followed.pop(name, None) or Follower(folder.log)
        while follower.behind and time.monotonic() < until and follower.poll():
            pass
        line, is_unread = line_of(folder, follower), follower.behind and time.monotonic() >= until
        if not is_unread:
            self._known[name] = (changed, line)
        if follower.has_begun and (is_unread or follower.state in GOES_ON):
            self._followed[name] = follower
        return line | {"state": UNREAD} if is_unread else line


def line_of(folder: RunFolder, follower: Follower) -> dict[str, Any]:
    """Return the line of one run in a list."""
    verdict: dict[str, Any] = {}
    with suppress(OSError, ValueError, RequestError):
        found = json_file(folder.verdict, MOST_OF_RUN)
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
