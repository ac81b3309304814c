"""Whether another session is measured, where a plan goes on until its headline's interval is narrow (`study.until`)
or a time is used up (`study.budget`).

After each session a program of the analysis looks at the run folder (`sojourn.analysis.look`), for nothing that
measures understands records. What it says is logged, so that a run that was interrupted goes on by the same rule.
Two more things end a run: its budget of time, and the number of sessions that it may have.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from sojourn.conduct.archive import asked_in
from sojourn.conduct.remaining import recorded_parts
from sojourn.errors import RequestError
from sojourn.plan import effective_toml
from sojourn.plan.until import of_sessions, rounds_key
from sojourn.records.decode import json_value
from sojourn.records.log import read_log
from sojourn.records.lost import TOLD, begun_trials
from sojourn.records.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.conduct.archive import Log
    from sojourn.conduct.progress import Screen
    from sojourn.plan import Plan
    from sojourn.plan.trial import Trial
    from sojourn.records import RunFolder

End = Literal["interval", "budget", "sessions"]

PATIENCE_S = 600.0
"""A look that takes longer is given up, and the next session is measured."""

REASONS: dict[End, str] = {
    "interval": "its headline's interval was narrow enough",
    "budget": "no further session fitted into study.budget",
    "sessions": "it had as many sessions as bed.most_sessions allows",
}


@dataclass
class Until:
    """The looks at one run, and the time that it has taken."""

    plan: Plan
    folder: RunFolder
    log: Log
    screen: Screen
    _began: float = field(default_factory=time.monotonic)
    _sessions: int = 0
    """Of this process."""
    _before_s: float = 0.0
    """What the run had taken before this process."""

    def __post_init__(self) -> None:
        last = self._last_look()
        self._before_s = float(last.get("spent_s", 0.0))

    @property
    def is_asked(self) -> bool:
        """Whether the plan ends by an interval or by a budget."""
        return self.plan.study.until is not None or self.plan.study.budget_ns is not None

    def has_ended(self) -> End | None:
        """Why no session is measured at all: the last look of a run that was interrupted just then has ended it."""
        end: End | None = self._last_look().get("ends") if self.is_asked else None
        return end if end in REASONS and not self.has_stopped else None

    @property
    def has_stopped(self) -> bool:
        """Whether the run has told its end: what it still owes are blocks that it lost."""
        return bool(read_log(self.folder.log, {"stopped"}))

    def after_session(self, done: int, parts: int) -> End | None:
        """Look at the run after a session; why it ends now, or None where it goes on.

        `done` is how many of the run's trials are measured, `parts` how many sessions it has had.
        """
        if self.has_stopped:
            return None
        if not self.is_asked and (self.screen.on_doubt is None or parts >= self.plan.bed.sessions):
            return None
        self._sessions += 1
        spent = self._before_s + time.monotonic() - self._began
        told = look(self.folder) if self._is_looked_at else {}
        for doubt in told.pop("doubtful", ()):
            self.screen.doubt(doubt)
        if not self.is_asked:
            return None
        if refused := told.get("refused"):
            raise RequestError(refused)
        end = self._end(told, spent, parts)
        self.log("looked", part=parts - 1, spent_s=round(spent, 3), ends=end, **told)
        self.screen.say(forecast(told, self.plan, parts, self._session_s(), spent))
        if end is None and told.get("needed") is not None:
            self.screen.expect(done * int(told["needed"]) // parts)
        return end

    @property
    def _is_looked_at(self) -> bool:
        """Whether what the records say is wanted: a budget alone asks for no interval."""
        return self.plan.study.until is not None or self.screen.on_doubt is not None

    def stop(self, end: End, trials: Sequence[Trial[Any]], done: int) -> None:
        """Let the effective plan ask for what was measured, and log why the run ends."""
        name, key = rounds_key(self.plan)
        asked = getattr(self.plan.sections[name], key)
        begun = begun_trials(read_log(self.folder.log, TOLD))  # what was lost is owed, and its round was begun
        rounds = min((one.round for one in trials[done:] if one.block not in begun), default=asked)
        sessions = len(recorded_parts(self.folder))
        shorter = of_sessions(self.plan, max(2, sessions), rounds)
        most = self.plan.bed.sessions
        said = f"{name}.{key} = {asked} in {most} sessions; ended after {rounds} in {sessions}: {REASONS[end]}"
        write_whole(self.folder.plan, effective_toml(replace(shorter, asked=(*asked_in(self.folder.plan), said))))
        self.log("stopped", by=end, sessions=sessions, rounds=rounds, asked=asked)
        self.screen.say(f"ended after {several(sessions)}: {REASONS[end]}")

    def _end(self, told: dict[str, Any], spent: float, parts: int) -> End | None:
        if told.get("enough"):
            return "interval"
        if parts >= self.plan.bed.sessions:
            return "sessions"
        budget = self.plan.study.budget_ns
        return "budget" if budget is not None and spent + self._session_s() > budget / 1e9 else None

    def _session_s(self) -> float:
        """How long a session takes, its look included: the mean of those of this process."""
        return (time.monotonic() - self._began) / self._sessions

    def _last_look(self) -> dict[str, Any]:
        looks = read_log(self.folder.log, {"looked"})
        return looks[-1] if looks else {}


def look(folder: RunFolder) -> dict[str, Any]:
    """What the analysis says of the run so far; a problem where it cannot say anything."""
    argv = [sys.executable, "-P", "-m", "sojourn.analysis.look", str(folder.path.resolve())]
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
        told = json_value(ended.stdout)
    except subprocess.TimeoutExpired:
        return {"problem": f"the records could not be looked at within {PATIENCE_S:g} s"}
    except ValueError:
        told = None
    if isinstance(told, dict):
        return told
    why = ended.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {ended.returncode}"]
    return {"problem": f"the records could not be looked at: {why[0]}"}


def forecast(told: dict[str, Any], plan: Plan, parts: int, session_s: float, spent_s: float) -> str:
    """The interval now, and how many sessions and how much time its width asks for, as a line for the screen."""
    budget = plan.study.budget_ns
    if plan.study.until is None:
        left_s = max(0.0, (budget or 0) / 1e9 - spent_s)
        fit = min(int(left_s // session_s), plan.bed.sessions - parts)
        return f"{several(parts)} in {in_time(spent_s)}; {several(fit, 'more session')} fit into the budget"
    said = f"{several(parts)} in {in_time(spent_s)}: {told.get('sentence') or told.get('problem')}"
    if told.get("enough") or "problem" in told:
        return said
    if (needed := told.get("needed")) is None:
        return f"{said}; no number of sessions makes it that narrow"
    more = max(1, needed - parts)
    said += f"; about {several(more, 'more session')}, {in_time(more * session_s)}"
    if needed > plan.bed.sessions:
        said += f", beyond bed.most_sessions = {plan.bed.sessions}"
    if budget is not None and spent_s + more * session_s > budget / 1e9:
        said += f", beyond the budget, of which {in_time(max(0.0, budget / 1e9 - spent_s))} is left"
    return said


def several(count: int, what: str = "session") -> str:
    """So many of them."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def in_time(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
