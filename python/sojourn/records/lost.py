"""Lost trials in a run's log: which, in which part, why, and whether they were measured again.

The conductor writes these entries, the analysis leaves out their trials, and both report them in the same words. Does
not decide what is lost (conduct/losses.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BEGUN, CLOSED, LOST = "begun", "closed", "lost"
"""Events: a trial began; a batch ended with all hosts present and its records fetched; trials are lost."""

TOLD = frozenset({BEGUN, CLOSED, LOST, "interrupted"})
"""Events from which losses are derived."""

STREAM_TRIAL = "stream-trial"
SEARCHES = ("search-step", "search-result")

MOST = 2**31 - 1
"""The maximum of the columns of blocks and parts, which are int32."""

MOST_NAMED = 12
"""The most trials named in a sentence; further ones are counted, and named in the log."""


@dataclass(frozen=True, slots=True)
class LostTrial:
    """A trial whose records in this part do not count."""

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
        """The trial as text."""
        return f"session {self.part}, round {self.round}, {self.path}, cell {self.cell} (block {self.block})"


def lost_trials(entries: Iterable[dict[str, Any]]) -> list[LostTrial]:
    """Return every lost trial in a log, in order; malformed entries are left out."""
    found: dict[tuple[int, int], LostTrial] = {}
    measured: dict[int, int] = {}
    for entry in entries:
        name, part = entry.get("event"), entry.get("part")
        if name == CLOSED and _is_number(part):
            measured |= dict.fromkeys(closed_trials(entry), part)
        elif name == LOST and _is_number(part):
            for one in _trials(entry, part):
                found[one.block, part] = one
    return [
        LostTrial(one.block, one.part, one.round, one.path, one.cell, one.why, measured.get(one.block, -1) > one.part)
        for one in found.values()
    ]


def closed_trials(entry: dict[str, Any]) -> list[int]:
    """Return the trials of a `closed` entry."""
    return _numbers(entry.get("trials"))


def still_lost(entries: Iterable[dict[str, Any]]) -> list[LostTrial]:
    """Return the trials that no later part has measured, each once, with its last loss."""
    last = {one.block: one for one in lost_trials(entries) if not one.again}
    return sorted(last.values(), key=lambda one: one.block)


def lost_blocks(entries: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
    """Return block and part of all records that do not count.

    These are lost trials and, with block numbers of their own, their attempts and the steps of their searches.
    """
    lost = {(one.block, one.part) for one in lost_trials(entries)}
    if not lost:
        return lost
    own = {(block, part) for part, entry in in_parts(entries, STREAM_TRIAL) if _is_number(block := entry.get("block"))
           and {(entry.get("trial"), part), (entry.get("search"), part)} & lost}  # fmt: skip
    return lost | own


def without_lost_searches(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the log without the steps and results of searches lost in the part that made them."""
    lost = {(one.block, one.part) for one in lost_trials(entries)}
    gone = {id(entry) for name in SEARCHES for part, entry in in_parts(entries, name)
            if (entry.get("search"), part) in lost}  # fmt: skip
    return [entry for entry in entries if id(entry) not in gone]


def in_parts(entries: Iterable[dict[str, Any]], event: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return every entry of an event, with the number of its part."""
    part = 0
    for entry in entries:
        if entry.get("event") == "started" and _is_number(started := entry.get("part")):
            part = started
        elif entry.get("event") == event:
            yield part, entry


def begun_trials(entries: Iterable[dict[str, Any]]) -> dict[int, int]:
    """Return the trials that began, each with its last part; trials that a person interrupted are not lost."""
    begun: list[dict[str, Any]] = []
    for entry in entries:
        if entry.get("event") == BEGUN:
            begun.append(entry)
        elif entry.get("event") == "interrupted":
            begun.clear()
    return {number: part for entry in begun for number, part in [(entry.get("trial"), entry.get("part"))]
            if _is_number(number) and _is_number(part)}  # fmt: skip


def named(lost: Sequence[LostTrial]) -> str:
    """Return the number of lost trials and the names of the first, as part of a sentence."""
    several = lost
    what = "1 block is lost" if len(several) == 1 else f"{len(several)} blocks are lost"
    names = [one.name for one in several[:MOST_NAMED]]
    more = [f"and {len(several) - MOST_NAMED} more, which log.jsonl names"] if len(several) > MOST_NAMED else []
    return f"{what}: {'; '.join([*names, *more])}"


def _trials(entry: dict[str, Any], part: int) -> Iterable[LostTrial]:
    told = entry.get("trials")
    for one in told if isinstance(told, list) else []:
        if isinstance(one, dict) and all(_is_number(one.get(key)) for key in ("block", "round", "cell")):
            why = str(entry.get("why", ""))
            yield LostTrial(one["block"], part, one["round"], str(one.get("path", "")), one["cell"], why)


def _numbers(told: Any) -> list[int]:
    return [one for one in told if _is_number(one)] if isinstance(told, list) else []


def _is_number(told: Any) -> TypeGuard[int]:
    """Return whether a column of blocks or parts can hold the value; JSON may have any."""
    return isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= MOST
