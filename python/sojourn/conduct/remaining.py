"""The remaining work of an interrupted run: the number of its next part, and of unplanned blocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sojourn.records.log import read_log
from sojourn.records.lost import BEGUN

if TYPE_CHECKING:
    from sojourn.records import RunFolder

PART = re.compile(r"-(\d{3})\.\w+$")


def next_part(folder: RunFolder) -> int:
    """Return one more than any part that left a file, or logged the begin of a trial."""
    begun = (int(entry["part"]) for entry in read_log(folder.log, {BEGUN}))
    return max([*recorded_parts(folder), *begun], default=-1) + 1


def recorded_parts(folder: RunFolder) -> set[int]:
    """Return the parts that left a file."""
    return {int(found[1]) for path in folder.records.iterdir() if (found := PART.search(path.name))}


def next_bed(folder: RunFolder, part: int) -> int:
    """Return the number of the next bed: one more than any in the log, or that of the part if the log has none."""
    return max((int(entry["bed"]) + 1 for entry in _started(folder) if "bed" in entry), default=part)


def run_seed(folder: RunFolder) -> int | None:
    """Return the seed of what the run's beds have in common; None if none was drawn yet."""
    draws = (entry.get("draw") or {} for entry in _started(folder))
    return next((int(draw["run_seed"]) for draw in draws if "run_seed" in draw), None)


def _started(folder: RunFolder) -> list[dict[str, Any]]:
    return read_log(folder.log, {"started"})


def next_block(folder: RunFolder, first: int, end: int | None = None) -> int:
    """Return a number for an unplanned block: at least `first`, and one more than any in the log below `end`."""
    known = (int(entry["block"]) for entry in read_log(folder.log) if "block" in entry)
    return max([first, *(block + 1 for block in known if end is None or block < end)])


def is_finished(folder: RunFolder) -> bool:
    """Return whether the log says that the run is complete."""
    return bool(read_log(folder.log, {"finished"}))
