"""Follow a run's log as it grows: the progress of the run, and the results of each trial, path by path.

Reads complete lines from the last position; a new log is read from its beginning. An incomplete line is read when it is
complete; one that is too long is left out. It estimates nothing: it adds up counts, and keeps the instrument's results
of each trial. Delays between two clocks are left to the analysis (`look`), which corrects the offset.
"""

from __future__ import annotations

import json
import os
import stat
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any

from sojourn.records.earlier import read_json
from sojourn.records.log import damage
from sojourn.records.lost import BEGUN, CLOSED, closed_trials
from sojourn.records.so_far import SoFar

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 8 << 20
"""The bytes of a log that are read at once; the rest is read the next time. A longer line is left out."""

HEAD_BYTES = 256
"""A log that begins with other bytes is another log: file systems reuse the inode number of a removed file."""

POINTS = 400
"""The trials of each path and quantity that are drawn: the latest."""

KEPT = 4000
"""The trials of each path and quantity whose median is shown: the latest."""

WAITING, BUILDING, MEASURING = "not begun", "building", "measuring"
FINISHED, INTERRUPTED, FAILED = "finished", "interrupted", "failed"
GOES_ON = frozenset({WAITING, BUILDING, MEASURING})

TOLD = {
    "contended": "contended",
    "bed-changed": "the machine or the bed is not what it was in the run's first part",
    "time-is-up": "the time that the plan allows was up: the rounds that were measured are judged",
    "stopped": "no further session is measured: the plan's study.until or study.budget, or its sessions, ended it",
    "interrupted": "interrupted; sojourn run --resume goes on with it",
    "lost": "blocks are lost",
}
"""Events that are shown at once, by name; an event's own sentence has precedence."""


COUNTED = {"trial": "block", "tcp-trial": "block", "load-trial": "block", "search-result": "search"}
"""Events that end a trial without further results, with the key of the trial's number. Trials of methods that log none
(`tcp-cost`) are counted when their batch is closed.
"""


@dataclass
class Trials:
    """The results of the trials over one path."""

    trials: int = 0
    sent: int = 0
    lost: int = 0
    values: dict[str, deque[float]] = field(default_factory=dict)
    points: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)

    def keep(self, name: str, at_s: float, value: Any) -> None:
        """Keep a trial's figure, unless it is null."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return
        self.values.setdefault(name, deque(maxlen=KEPT)).append(float(value))
        self.points.setdefault(name, deque(maxlen=POINTS)).append((round(at_s, 2), float(value)))

    def told(self) -> dict[str, Any]:
        """Return the counts, the median over trials of each figure, and the latest trials."""
        return {
            "trials": self.trials,
            "sent": self.sent,
            "lost": self.lost,
            "middle": {name: median(several) for name, several in self.values.items()},
            "points": {name: list(several) for name, several in self.points.items()},
        }


class Follower:
    """Follows the log of one run."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._forget()

    def _forget(self) -> None:
        self._place, self._inode, self._rest, self._head = 0, 0, b"", b""
        self._skips = False
        """Whether the rest of a line that is too long is skipped."""
        self.state, self.sentence = WAITING, ""
        self.so_far = SoFar()
        self.study, self.total = "", 0
        self.beds = 0
        self.simulated = False
        """Whether the run's time is simulated, so that other programs cannot disturb it."""
        self.done: set[int] = set()
        self.paths: dict[str, Trials] = {}
        self.notes: deque[tuple[float, str]] = deque(maxlen=12)
        self.joined = False
        """Whether trials had two clocks with exchanges: then no delay of a single trial is shown."""
        self.at_s = 0.0
        """The time of the last event since the first, in seconds."""
        self._began_ns = 0
        self._pace: deque[tuple[float, int]] = deque(maxlen=200)

    def poll(self) -> bool:
        """Read new lines; return whether there were any, or the log is a new one."""
        if not self.behind:
            return False
        try:
            with self._log.open("rb") as file:
                found, head = os.fstat(file.fileno()), file.read(HEAD_BYTES)
                is_new = found.st_ino != self._inode or found.st_size < self._place or not head.startswith(self._head)
                if is_new:
                    self._forget()
                self._inode, self._head = found.st_ino, head
                file.seek(self._place)
                new = file.read(MOST_BYTES)
        except OSError:
            return False
        self._place += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        if self._skips and lines:
            del lines[0]
            self._skips = False
        if self._skips or len(self._rest) > MOST_BYTES:
            self._rest, self._skips = b"", True
        for line in lines:
            self._take(line)
        return bool(lines) or is_new

    @property
    def behind(self) -> bool:
        """Whether the log has unread bytes, or is another one."""
        try:
            found = self._log.stat()
        except OSError:
            return False
        # A pipe that somebody has put there would be waited for.
        return stat.S_ISREG(found.st_mode) and (found.st_ino != self._inode or found.st_size != self._place)

    @property
    def has_begun(self) -> bool:
        """Whether anything was read."""
        return self._place > 0

    def left_s(self) -> float | None:
        """Return the remaining seconds at the rate of the latest trials; None if unknown."""
        if self.state != MEASURING or len(self._pace) < 2 or not self.total:
            return None
        (first_s, first), (last_s, last) = self._pace[0], self._pace[-1]
        return (last_s - first_s) / (last - first) * (self.total - len(self.done)) if last > first else None

    def told(self) -> dict[str, Any]:
        """Return all of it in the form of the page."""
        return {
            "state": self.state,
            "sentence": self.sentence,
            "done": len(self.done),
            "total": self.total,
            "beds": self.beds,
            "elapsed_s": round(self.at_s, 1),
            "left_s": self.left_s(),
            "joined": self.joined,
            "paths": {name: path.told() for name, path in self.paths.items()},
            "notes": [{"at_s": round(at, 1), "sentence": said} for at, said in self.notes],
        }

    def _take(self, line: bytes) -> None:
        try:
            event = read_json(line.decode("utf-8", "replace"))
        except json.JSONDecodeError:
            return
        if not isinstance(event, dict) or damage(event) is not None:
            return
        with suppress(ArithmeticError, AttributeError, TypeError, ValueError):  # a malformed event
            at_ns = event.get("tai_ns")
            if isinstance(at_ns, int):
                self._began_ns = self._began_ns or at_ns
                self.at_s = max(self.at_s, (at_ns - self._began_ns) / 1e9)
            self._understand(str(event.get("event")), event)
            self.so_far.take(event)

    def _understand(self, name: str, event: dict[str, Any]) -> None:
        if name == "started":
            self._started(event)
        elif name in {"finished", "failed", "interrupted"}:
            self.state = {"finished": FINISHED, "failed": FAILED}.get(name, INTERRUPTED)
            self.sentence = str(event.get("message") or "")
        elif name == "bed":
            self.simulated = event.get("backend") == "sim"
        elif name == "block":
            self._block(event)
        elif name == "stream-trial":
            self._stream(event)
        elif name in COUNTED:
            self._count(event.get(COUNTED[name]))
        elif name == BEGUN:
            self._begun()
        elif name == CLOSED:
            self._closed(closed_trials(event))
        if name in TOLD:
            self.notes.append((self.at_s, str(event.get("sentence") or TOLD[name])))

    def _started(self, event: dict[str, Any]) -> None:
        self.state, self.sentence = BUILDING, ""
        self.study = str(event.get("study", ""))
        self.total = int(event.get("blocks") or 0)
        self.beds = max(self.beds, int(event.get("bed") or 0) + 1)
        self._pace.clear()

    def _begun(self) -> None:
        """Handle the begin of a trial: the rate of trials is taken from the first one of a session."""
        self.state = MEASURING
        if not self._pace:
            self._pace.append((self.at_s, len(self.done)))

    def _closed(self, trials: list[int]) -> None:
        """Handle a batch whose records have been fetched; most of its trials were counted when they ended."""
        if not self.done.issuperset(trials):
            self.done.update(trials)
            self._pace.append((self.at_s, len(self.done)))

    def _count(self, trial: Any) -> None:
        if isinstance(trial, int):
            self.done.add(trial)
        self.state = MEASURING
        self._pace.append((self.at_s, len(self.done)))

    def _path(self, event: dict[str, Any]) -> Trials:
        path = self.paths.setdefault(str(event.get("device")), Trials())
        path.trials += 1
        return path

    def _block(self, event: dict[str, Any]) -> None:
        """Handle a block of probes."""
        self._count(event.get("block"))
        path = self._path(event)
        path.sent += int(event.get("sent") or 0)
        path.lost += int(event.get("lost") or 0)
        self._round_trips(path, event.get("rtt") or {})
        path.keep("loss", self.at_s, _share(event.get("lost"), event.get("sent")))

    def _round_trips(self, path: Trials, rtt: dict[str, Any]) -> None:
        for name in ("p50", "p90", "p99"):
            path.keep(f"rtt_{name}_ns", self.at_s, rtt.get(f"{name}_ns"))

    def _stream(self, event: dict[str, Any]) -> None:
        """Handle a planned trial of streams that was kept; trials that qualify the tester are not drawn."""
        self.state = MEASURING
        if event.get("trial") is None or not event.get("kept", True):
            return
        self._count(event["trial"])
        path, sent = self._path(event), event.get("sent") or []
        self._round_trips(path, (event.get("probed") or {}).get("rtt") or {})
        received = [flow for flow in event.get("received") or [] if flow.get("port", 0) == 0]
        frames, lost = (sum(int(flow.get(key) or 0) for flow in of) for key, of in (("sent", sent), ("lost", received)))
        path.sent, path.lost = path.sent + frames, path.lost + lost
        path.keep("loss", self.at_s, _share(lost, frames))
        if received:
            path.keep("throughput_bps", self.at_s, sum(flow.get("throughput_bps") or 0 for flow in received))
        if sent:
            path.keep("pacing_p99_ns", self.at_s, (sent[0].get("pacing_error_ns") or {}).get("p99"))
        if all(clock.get("shared") for clock in event.get("clock") or []):
            delay = received[0].get("delay_ns") if received else None
            for name in ("p50", "p99"):
                path.keep(f"delay_{name}_ns", self.at_s, (delay or {}).get(name))
        else:
            self.joined = True


def _share(part: Any, whole: Any) -> float | None:
    return int(part or 0) / int(whole) if whole else None
