"""What the queues of a trial's emulators did, by direction of the flows: how long packets waited, what was dropped.

Counters of the emulators themselves, of every packet of the trial: also of probes, acknowledgements and the start-up.
Each packet that arrived at a pipe must have left it, been lost by a cause, or be held at the end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sojourn.analysis.finding import Finding, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.run import Run

WAYS = ("down", "up")
PIPES = {"forward": ("up",), "backward": ("down",)}
"""Which direction's packets pass a pipe of an emulator; one of another name has both."""

QUEUE = ("full", "managed")
"""The causes of a loss that are the queue's."""


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
        own["queueing_delay", f"{way} mean"] = sum(float(one["queueing_delay"]["mean_ns"]) for one in pipes)
        if len(pipes) == 1:
            own["queueing_delay", f"{way} p99"] = float(pipes[0]["queueing_delay"]["p99_ns"])
        arrived = max(1, *(int(one["arrived"]) for one in pipes))
        own["dropped", way] = sum(int(one["lost"][cause]) for one in pipes for cause in QUEUE) / arrived
        own["marked", way] = sum(int(one["marked"]) for one in pipes) / arrived
    return found


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
