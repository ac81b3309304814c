"""`sojourn-instrument capture serve`: taps on interfaces of a bed's host, attached and detached for each trial.

Does not decide what to capture, and reads no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.instruments.conversation import PATIENCE_SECONDS, Conversation, no_tick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class TapInstrument(Conversation):
    """A running `capture serve`."""

    def start(self, folder: Path, taps: Sequence[Mapping[str, Any]], block: int | None = None) -> dict[str, Any]:
        """Attach taps that write into a folder; on return, they capture every frame.

        Each tap has a `name` (1 to 16 letters and digits) and an `interface`; its `options` are those of `sojourn
        capture`.
        """
        return self._do({"do": "start", "block": block, "folder": str(folder), "taps": [dict(tap) for tap in taps]})

    def seen(self) -> int:
        """Return the number of frames that all taps have captured so far."""
        return int(self._do({"do": "counts"})["seen"])

    def stop(self) -> dict[str, Any]:
        """Detach all taps; on return their files are complete. The answer has the counters of each tap."""
        return self._do({"do": "stop"})

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        self.ask(request)
        return self.answer(PATIENCE_SECONDS, no_tick)


def tap_argv(instrument: str, cpu: int | None = None) -> list[str]:
    """Return the command line of a server of taps."""
    return [instrument, "capture", "serve", "--die-with-parent", *([] if cpu is None else ["--cpu", str(cpu)])]


def match_argv(instrument: str, before: Path, after: Path, folder: Path, window_ns: int) -> list[str]:
    """Return the command line that matches the records of two taps with one clock, into a folder of its own."""
    own = ["--same-clock", "--window", f"{window_ns}ns", "--output", str(folder), "--json"]
    return [instrument, "match", str(before), str(after), *own]
