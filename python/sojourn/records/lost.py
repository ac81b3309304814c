"""Trials that a run lost, as its log tells: which, in which part, why, and whether they were measured again since.

The conductor writes these lines, the analysis leaves out what they name, both say it to people by the same words. Does
not decide what is lost (conduct/losses.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BEGUN, CLOSED, LOST = "begun", "closed", "lost"
"""Events: a trial began; a batch ended with every host there and every link up; trials are lost."""

MOST_NAMED = 12
"""More are counted: the log names all of them."""


@dataclass(frozen=True, slots=True)
class LostTrial:
    """A trial of which nothing counts that was recorded in this part."""

    block: int
    part: int
    round: int
    path: str
    cell: int
    why: str = ""
    again: bool = False
    """Whether a later part measured it."""

    @property
    def name(self) -> str:
        """As people read it."""
        return f"session {self.part}, round {self.round}, {self.path}, cell {self.cell} (block {self.block})"


def lost_trials(entries: Iterable[dict[str, Any]]) -> list[LostTrial]:
    """Every trial that a log tells lost, in its order; a line that says what none of ours says is left out."""
    found: dict[tuple[int, int], LostTrial] = {}
    measured: dict[int, int] = {}
    for entry in entries:
        name, part = entry.get("event"), entry.get("part")
        if name == CLOSED and isinstance(part, int):
            measured |= dict.fromkeys(_numbers(entry.get("trials")), part)
        elif name == LOST and isinstance(part, int):
            for one in _trials(entry, part):
                found[one.block, part] = one
    return [
        LostTrial(one.block, one.part, one.round, one.path, one.cell, one.why, measured.get(one.block, -1) > one.part)
        for one in found.values()
    ]


def still_lost(entries: Iterable[dict[str, Any]]) -> list[LostTrial]:
    """Those that no later part has measured: each once, as it was lost last."""
    last = {one.block: one for one in lost_trials(entries) if not one.again}
    return sorted(last.values(), key=lambda one: one.block)


def begun_trials(entries: Iterable[dict[str, Any]]) -> dict[int, int]:
    """The trials that began, each with the part in which it did last; what a person interrupted is no loss."""
    begun: list[dict[str, Any]] = []
    for entry in entries:
        if entry.get("event") == BEGUN:
            begun.append(entry)
        elif entry.get("event") == "interrupted":
            begun.clear()
    return {number: part for entry in begun for number, part in [(entry.get("trial"), entry.get("part"))]
            if isinstance(number, int) and isinstance(part, int)}  # fmt: skip


def named(lost: Sequence[LostTrial]) -> str:
    """A sentence's part: how many, and the names of the first of them."""
    several = lost
    what = "1 block is lost" if len(several) == 1 else f"{len(several)} blocks are lost"
    names = [one.name for one in several[:MOST_NAMED]]
    more = [f"and {len(several) - MOST_NAMED} more, which log.jsonl names"] if len(several) > MOST_NAMED else []
    return f"{what}: {'; '.join([*names, *more])}"


def _trials(entry: dict[str, Any], part: int) -> Iterable[LostTrial]:
    told = entry.get("trials")
    for one in told if isinstance(told, list) else []:
        if isinstance(one, dict) and all(isinstance(one.get(key), int) for key in ("block", "round", "cell")):
            why = str(entry.get("why", ""))
            yield LostTrial(one["block"], part, one["round"], str(one.get("path", "")), one["cell"], why)


def _numbers(told: Any) -> list[int]:
    return [one for one in told if isinstance(one, int)] if isinstance(told, list) else []
