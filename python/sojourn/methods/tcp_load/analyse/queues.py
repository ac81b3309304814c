"""What the queues of a trial's emulators did, by direction of the flows: how long packets waited, what was lost.

Counters of the emulators themselves, of every packet of the trial: also of probes, acknowledgements and the start-up.
Each packet that arrived at a pipe must have left it, been lost by a cause, or be held at the end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.analysis.finding import Finding, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.run import Run

WAYS = ("down", "up")
PIPES = {"forward": ("up",), "backward": ("down",)}
"""Which direction's packets pass a pipe of an emulator; one of another name has both."""

QUEUE = ("full", "managed")
"""The causes of a loss that are the queue's."""

ENDED = "ended"
"""The cause of a loss that is the emulator's end, not the path's."""


@dataclass(frozen=True, slots=True)
class Least:
    """The least time that any packet waited in a queue, window by window; NaN where none left it."""

    from_ns: float
    window_ns: float
    waits: tuple[float, ...]

    def standing(self, start: float, end: float) -> float | None:
        """The mean over the windows that lie wholly within a time; None where no packet left the queue in any."""
        begins = self.from_ns + self.window_ns * np.arange(len(self.waits))
        within = np.array(self.waits)[(begins >= start) & (begins + self.window_ns <= end)]
        known = within[~np.isnan(within)]
        return float(known.mean()) if len(known) else None


def pipes_of(run: Run) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pipe of each emulator behind each trial: the log's event, and the pipe's counters."""
    for event in run.log:
        if event.get("event") == "emulator":
            for pipe in (event["summary"].get("summary") or {}).get("pipes", ()):
                yield event, pipe


def queues_of(run: Run) -> dict[int, dict[tuple[str, str], float]]:
    """By block: mean and p99 of the queueing delay, shares that the queue dropped and marked; of each direction.

    Of several emulators in a row delays and drops add up; their p99 does not, and is left out.
    """
    several: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for event, pipe in pipes_of(run):
        for way in PIPES.get(str(pipe.get("name")), WAYS):
            if (pipe.get("queueing_delay") or {}).get("count"):
                several[int(event["block"]), way].append(pipe)
    found: dict[int, dict[tuple[str, str], float]] = defaultdict(dict)
    for (block, way), pipes in several.items():
        own = found[block]
        lost = (int(count) for one in pipes for cause, count in one["lost"].items() if cause != ENDED)
        own["losses", f"{way} emulator"] = float(sum(lost))
        own["queueing_delay", f"{way} mean"] = sum(float(one["queueing_delay"]["mean_ns"]) for one in pipes)
        if len(pipes) == 1:
            own["queueing_delay", f"{way} p99"] = float(pipes[0]["queueing_delay"]["p99_ns"])
        arrived = max(1, *(int(one["arrived"]) for one in pipes))
        own["dropped", way] = sum(int(one["lost"][cause]) for one in pipes for cause in QUEUE) / arrived
        own["marked", way] = sum(int(one["marked"]) for one in pipes) / arrived
    return found


def least_of(run: Run) -> dict[int, dict[str, Least]]:
    """By block and direction, the least waits of its only emulator: of several in a row they do not add up."""
    found: dict[int, dict[str, list[Least]]] = defaultdict(lambda: defaultdict(list))
    for event, pipe in pipes_of(run):
        told = pipe.get("least_waits")  # earlier versions have none
        for way in PIPES.get(str(pipe.get("name")), WAYS):
            if told:
                waits = tuple(np.nan if wait is None else float(wait) for wait in told["least_ns"])
                found[int(event["block"])][way].append(Least(float(told["from_ns"]), float(told["window_ns"]), waits))
    return {
        block: {way: several[0] for way, several in ways.items() if len(several) == 1} for block, ways in found.items()
    }


def unaccounted(run: Run) -> Iterator[Finding]:
    """Packets of an emulator that left more or less often than they arrived; those of before may have been held."""
    held: dict[tuple[str, str], int] = {}
    for event, pipe in pipes_of(run):
        if "arrived" not in pipe:
            continue
        key = str(event.get("emulator")), str(pipe.get("name"))
        lost = sum(int(count) for count in pipe["lost"].values())
        over = int(pipe["arrived"]) + int(pipe["duplicated"]) - int(pipe["sent"]) - lost - int(pipe["held"])
        if not -held.get(key, 0) <= over <= 0:
            said = (
                f"of trial {event['block']}, {pipe['arrived']} packets arrived at pipe {key[1]} of emulator {key[0]}, "
                f"{pipe['duplicated']} were doubled there, {pipe['sent']} left it, it lost {lost} and holds "
                f"{pipe['held']}: {abs(over)} too {'few' if over > 0 else 'many'}"
            )
            yield Finding("not_conserved", said, float(over), (Place(str(event["device"]), None),))
            return
        held[key] = int(pipe["held"])
