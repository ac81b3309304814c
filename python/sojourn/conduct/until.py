"""Decide whether another session is measured, for a plan that ends with a narrow interval or a time budget.

These are `study.until` and `study.budget`. After each session a program of the analysis evaluates the run folder
(`sojourn.analysis.look`), because measuring code does not interpret records. The results are logged, so that a resumed
run follows the same rule. Two more limits end a run: its time budget, and its maximum number of sessions.
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
from sojourn.records.shape import COUNT, maybe, misfit
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
"""The time limit of an evaluation; without its result, the next session is measured."""

REASONS: dict[End, str] = {
    "interval": "its headline's interval was narrow enough",
    "budget": "no further session fitted into study.budget",
    "sessions": "it had as many sessions as bed.most_sessions allows",
}


@dataclass
class Until:
    """The interim evaluations of one run, and its time so far."""

    plan: Plan
    folder: RunFolder
    log: Log
    screen: Screen
    _began: float = field(default_factory=time.monotonic)
    _sessions: int = 0
    """The sessions of this process."""
    _before_s: float = 0.0
    """The run's time before this process."""

    def __post_init__(self) -> None:
        last = self._last_look()
        self._before_s = float(last.get("spent_s", 0.0))

    @property
    def is_asked(self) -> bool:
        """Whether the plan ends by an interval or by a budget."""
        return self.plan.study.until is not None or self.plan.study.budget_ns is not None

    def has_ended(self) -> End | None:
        """Return why no session is measured at all: the last evaluation before an interruption ended the run."""
        end: End | None = self._last_look().get("ends") if self.is_asked else None
        return end if end in REASONS and not self.has_stopped else None

    @property
    def has_stopped(self) -> bool:
        """Whether the end of the run is logged: remaining trials are blocks that it lost."""
        return bool(read_log(self.folder.log, {"stopped"}))

    def after_session(self, done: int, parts: int) -> End | None:
        """Evaluate the run after a session; return why it ends now, or None if it goes on.

        `done` is the number of measured trials of the run, `parts` the number of its sessions.
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
        """Whether the records are evaluated: a budget alone needs no interval."""
        return self.plan.study.until is not None or self.screen.on_doubt is not None

    def stop(self, end: End, trials: Sequence[Trial[Any]], done: int) -> None:
        """Shorten the effective plan to what was measured, and log why the run ends."""
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
        """The mean duration of this process's sessions, evaluation included."""
        return (time.monotonic() - self._began) / self._sessions

    def _last_look(self) -> dict[str, Any]:
        looks = read_log(self.folder.log, {"looked"})
        return looks[-1] if looks else {}


LOOKED = {"needed": maybe(COUNT)}
"""The shape of what a look says."""


def look(folder: RunFolder) -> dict[str, Any]:
    """Return the interim result of the analysis; a `problem` if there is none."""
    argv = [sys.executable, "-P", "-m", "sojourn.analysis.look", str(folder.path.resolve())]
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
        told = json_value(ended.stdout)
    except subprocess.TimeoutExpired:
        return {"problem": f"the records could not be looked at within {PATIENCE_S:g} s"}
    except ValueError:
        told = None
    if isinstance(told, dict) and misfit(told, LOOKED) is None:
        return told
    why = ended.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {ended.returncode}"]
    return {"problem": f"the records could not be looked at: {why[0]}"}


def forecast(told: dict[str, Any], plan: Plan, parts: int, session_s: float, spent_s: float) -> str:
    """Return the present interval, and the sessions and time that its target needs, as a line for the screen."""
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
    """Return a count with its noun in the singular or plural."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def in_time(seconds: float) -> str:
    """Return a time in a suitable unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
