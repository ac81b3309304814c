"""One run for its page: the state from the log at once, and the results of the last evaluation of the records.

An evaluation (`look`) is a separate program, which gives way to all others (`giving_way`) unless there is nothing to
disturb: a run that has ended, or is simulated. The next one begins when there are new trials and ten times the
processor time of the last one has passed. Nothing is read while nobody requests it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sojourn.records.decode import json_value
from sojourn.report.palette import inks, ordered, symbol_path
from sojourn.watch.follow import FINISHED, GOES_ON, Follower
from sojourn.watch.giving_way import PATIENCE_S, look_at

if TYPE_CHECKING:
    from pathlib import Path

    from sojourn.records.folder import RunFolder
    from sojourn.records.so_far import SoFar
    from sojourn.watch.giving_way import GivingWay

LEAST_WAIT_S = 8.0
LEAST_TRIALS = 4
TIMES_AS_LONG = 10
"""The time between evaluations, in multiples of the last one's processor time."""

STILL_S = 120.0
"""After this time without a new entry, a run in progress is reported as silent."""


class Watched:
    """A watched run."""

    def __init__(self, folder: RunFolder, giving_way: GivingWay | None) -> None:
        self.folder = folder
        self._follower = Follower(folder.log)
        self._giving_way = giving_way
        """Starts evaluations beside a measurement; None if there are to be no evaluations."""
        self._of_log: dict[str, Any] | None = None
        self._look: dict[str, Any] = {}
        self._looked_at: tuple[int, str, float] | None = None
        """Trials, state, and time of the verdict, at the last evaluation."""
        self._looking: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def told(self) -> dict[str, Any]:
        """Return the data of the page now; recomputed only if the log has grown."""
        while self._follower.behind and self._follower.poll():
            self._of_log = None
        if self._of_log is None:
            self._of_log = self._follower.told()
        if self._giving_way is not None:
            self._look_again()
        told = self._of_log
        found = inks(self._names(told))
        return {
            "name": self.folder.path.resolve().name,
            "folder": str(self.folder.path.resolve()),
            **told,
            "paths": {name: told["paths"][name] for name in ordered(list(told["paths"]))},
            "study": self._follower.study,
            "still_s": self._still_s(told["state"]),
            "looks": self._giving_way is not None,
            "look": self._look,
            "slugs": {name: one.slug for name, one in found.items()},
            "symbols": {name: symbol_path(one) for name, one in found.items()},
            "looking": self._looking is not None and not self._looking.done(),
        }

    def so_far(self, within_s: float) -> SoFar | None:
        """Return the state from the log, for Prometheus; None if reading takes longer: the next call continues."""
        until = time.monotonic() + within_s
        while self._follower.behind and self._follower.poll():
            self._of_log = None
            if time.monotonic() > until and self._follower.behind:
                return None
        return self._follower.so_far

    def _names(self, told: dict[str, Any]) -> set[str]:
        return {*told["paths"], *(str(one["device"]) for one in self._look.get("cells") or [])}

    def close(self) -> None:
        """End a running evaluation."""
        if self._looking is not None:
            self._looking.cancel()

    def _still_s(self, state: str) -> int | None:
        if state not in GOES_ON:
            return None
        try:
            still = time.time() - self.folder.log.stat().st_mtime
        except OSError:
            return None
        return int(still // 60 * 60) if still > STILL_S else None

    def _look_again(self) -> None:
        """Begin an evaluation if one is due."""
        if self._looking is not None and not self._looking.done():
            return
        now = (len(self._follower.done), self._follower.state, self._verdict_s())
        is_over = self._follower.state not in GOES_ON
        is_due = time.monotonic() >= self._not_before and (now[0] >= LEAST_TRIALS or is_over)
        if self._looked_at == now or not (is_due or (is_over and self._looked_at is not None)):
            return
        self._looked_at = now
        self._looking = asyncio.create_task(self._look_once())

    def _verdict_s(self) -> float:
        try:
            return self.folder.verdict.stat().st_mtime if self._follower.state == FINISHED else 0.0
        except OSError:
            return 0.0

    async def _look_once(self) -> None:
        goes_on = self._follower.state in GOES_ON and not self._follower.simulated
        try:
            run = self.folder.path
            said = await (self._giving_way.looked(run) if goes_on and self._giving_way is not None else looked_now(run))
            found = json_value(said)
        except (TimeoutError, ValueError):
            found = {"problem": "the records could not be looked at within the memory and the time that there is"}
        if "problem" in found and "cells" in self._look:
            found = self._look | {"problem": found["problem"], "cpu_s": found.get("cpu_s", 0.0)}
        self._look = found
        self._not_before = time.monotonic() + max(LEAST_WAIT_S, TIMES_AS_LONG * float(found.get("cpu_s", 0.0)))


async def looked_now(run: Path) -> bytes:
    """Return what a look at a run prints that does not give way."""
    process = await asyncio.create_subprocess_exec(
        *look_at(run), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return (await asyncio.wait_for(process.communicate(), PATIENCE_S))[0]
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
