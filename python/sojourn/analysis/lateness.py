"""Late emulators: how late their packets left, and where that is a part of a result.

Reads the log's summaries of emulators.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sojourn.analysis.finding import Finding, Place, worst_first
from sojourn.analysis.wording import fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sojourn.analysis.run import Run

LATE_SHARE = 0.1
"""An emulator is too late if one packet in a hundred is late by more than this share of the measured value."""


def lateness(run: Run, what: str) -> dict[int, float]:
    """Return the lateness of packets of each block's emulators in ns, by statistic: `p99_ns`, `max_ns`."""
    found: dict[int, float] = defaultdict(float)
    for event in run.log:
        if event.get("event") == "emulator" and isinstance(block := event.get("block"), int):
            for pipe in (event["summary"].get("summary") or {}).get("pipes", ()):
                found[block] = max(found[block], float((pipe.get("accuracy") or {}).get(what) or 0))
    return found


def late_emulators(
    run: Run, where: Mapping[int, tuple[str, int]], measured_ns: Mapping[tuple[str, int], float]
) -> Iterator[Finding]:
    """Return a finding for late emulators, which add a delay of their own; `where` gives a block's device and cell."""
    found: dict[Place, float] = defaultdict(float)
    for block, late in lateness(run, "p99_ns").items():
        place = where.get(block)
        if place is not None and place in measured_ns and late > LATE_SHARE * measured_ns[place]:
            found[Place(*place)] = max(found[Place(*place)], late)
    if found:
        worst, late = worst_first(found)
        said = (
            f"in the worst trial 1 % of an emulator's packets left {fixed(late / 1e6, 1)} ms or more after their time: "
            "this machine causes a part of the delay"
        )
        yield Finding("tester_limited", said, late, worst)
