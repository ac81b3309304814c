"""What an interrupted run still owes: the number of its next part, and of blocks that nobody planned."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sojourn.records.log import read_log
from sojourn.records.lost import BEGUN

if TYPE_CHECKING:
    from sojourn.records import RunFolder

PART = re.compile(r"-(\d{3})\.\w+$")


def next_part(folder: RunFolder) -> int:
    """One more than any part that left a file, or lost everything that it had begun."""
    begun = (int(entry["part"]) for entry in read_log(folder.log, {BEGUN}))
    return max([*recorded_parts(folder), *begun], default=-1) + 1


def recorded_parts(folder: RunFolder) -> set[int]:
    """The parts that left a file."""
    return {int(found[1]) for path in folder.records.iterdir() if (found := PART.search(path.name))}


def next_bed(folder: RunFolder, part: int) -> int:
    """The number of the next bed: one more than any in the log, or that of the part where the log numbers none."""
    return max((int(entry["bed"]) + 1 for entry in _started(folder) if "bed" in entry), default=part)


def run_seed(folder: RunFolder) -> int | None:
    """The seed of what the run's beds have in common; None where none was drawn yet."""
    draws = (entry.get("draw") or {} for entry in _started(folder))
    return next((int(draw["run_seed"]) for draw in draws if "run_seed" in draw), None)


def _started(folder: RunFolder) -> list[dict[str, Any]]:
    return read_log(folder.log, {"started"})


def next_block(folder: RunFolder, first: int) -> int:
    """A number for a block that nobody planned: from `first`, and one more than any in the log."""
    return max([first, *(int(entry["block"]) + 1 for entry in read_log(folder.log) if "block" in entry)])


def is_finished(folder: RunFolder) -> bool:
    """Whether the log says that nothing is owed."""
    return bool(read_log(folder.log, {"finished"}))
