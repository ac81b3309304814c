"""`sojourn-instrument probe blocks`: one process for all blocks of a part; one line per request and per answer.

Does not decide what to request, and reads no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.instruments.conversation import PATIENCE_SECONDS, Conversation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class BlocksInstrument(Conversation):
    """A running instrument that measures blocks on request."""

    def measure(self, request: dict[str, Any], tick: Callable[[], None]) -> dict[str, Any]:
        """Measure one block and return its summary; `tick` is called every second meanwhile."""
        self.ask(request)
        return self.answer(longest_seconds(request), tick)


def longest_seconds(request: dict[str, Any]) -> float:
    """Return the time after which an instrument that has not answered a block counts as dead."""
    each = request["timeout_ns"] if request["schedule"] == "closed-loop" else 2 * request["interval_ns"]
    return float(request["count"] * each + request["timeout_ns"]) / 1e9 + PATIENCE_SECONDS


def blocks_argv(instrument: str, records: Path, part: int, options: list[str], *, simulated: bool = False) -> list[str]:
    """Return the command line of the instrument for one part of a run."""
    own = ["--record", str(records), "--part", str(part), "--die-with-parent"]
    return [instrument, "probe", "blocks", *own, *(["--simulated"] if simulated else []), *options]
