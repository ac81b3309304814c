"""What the device's host recorded of trials: packets of emulators, and taps. Without it a trial is not complete.

Its ends may be on other hosts, and their records here, when the device's host boots or its disk is full. Reads the log
and counts rows; does not judge.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sojourn.devices import emulator_label
from sojourn.plan.emulators import EVERY
from sojourn.records.log import read_log
from sojourn.records.lost import in_parts
from sojourn.records.reader import rows_of_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan import Plan
    from sojourn.records import RunFolder

TOLD = frozenset({"started", "taps", "emulator", "emulator-ended"})


def lacking_at_device(folder: RunFolder, plan: Plan) -> set[tuple[int, int]]:
    """Return part and block of the trials of which the device's host recorded more than is here."""
    log = read_log(folder.log, TOLD)
    tapped = {
        (part, entry["block"])
        for part, entry in in_parts(log, "taps")
        if not any((folder.records / entry["records"]).glob("*.arrow"))
    }
    return tapped | _without_packets(folder, plan, log)


def _without_packets(folder: RunFolder, plan: Plan, log: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
    """Return those with fewer packets in an emulator's log than it counted; what a log skipped, it says itself."""
    due: Counter[tuple[int, int]] = Counter()
    for part, entry in in_parts(log, "emulator"):
        if plan.emulators.get(emulator_label(entry["device"]) or EVERY, plan.emulators[EVERY]).log:
            due[part, entry["block"]] += _arrived(entry)
    if not due:
        return set()
    skipped: Counter[int] = Counter()
    for part, entry in in_parts(log, "emulator-ended"):
        skipped[part] += ((entry.get("report") or {}).get("log") or {}).get("skipped") or 0
    rows = rows_of_blocks(folder.records, "packets")
    return {place for place, count in due.items() if rows.get(place, 0) + skipped[place[0]] < count}


def _arrived(entry: dict[str, Any]) -> int:
    """Return how many packets at least passed an emulator: as many as entered the busiest of its pipes."""
    pipes = (entry["summary"].get("summary") or {}).get("pipes") or ()
    return max((one.get("arrived") or 0 for one in pipes), default=0)
