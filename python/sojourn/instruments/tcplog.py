"""`sojourn-instrument tcplog serve`: the log of TCP's state at one end, switched while connections go on.

A block begins with a mode and options, which may be changed within it, and ends with its packet accounting; between
blocks nothing is attached. Beginning a block takes a good part of a second, because its programs are loaded again;
changing its mode takes milliseconds. Does not decide what to request, and reads no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sojourn.instruments.conversation import PATIENCE_SECONDS, Conversation, no_tick

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Mode = Literal["on", "disabled", "off", "empty", "placebo"]


class LogInstrument(Conversation):
    """A running log."""

    def begin(
        self, block: int, mode: Mode, *, records: Path, who: str, options: Mapping[str, Any], keep: bool
    ) -> dict[str, Any]:
        """Begin a block; without `keep`, its log is written as usual, and removed at its end."""
        asked = {"block": block, "who": who, "records": str(records), "options": dict(options), "keep": keep}
        return self._do({"do": "begin", **asked, "mode": mode})

    def be(self, mode: Mode, options: Mapping[str, Any] | None = None) -> None:
        """Change options and mode within the block; on return, only the new ones are in force."""
        if options is not None:
            self._do({"do": "set", "options": dict(options)})
        self._do({"do": "mode", "mode": mode})

    def totals(self) -> dict[str, Any]:
        """Return the block's counts so far, in the form of its packet accounting."""
        return dict(self._do({"do": "status"})["totals"])

    def end(self, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """End the block; return its packet accounting and its number of records.

        Writing kept records may take longer.
        """
        self.ask({"do": "end"})
        return self.answer(seconds, no_tick)

    def take_statistics(self, *, on: bool) -> None:
        """Switch the kernel's run-time statistics of BPF programs on or off."""
        self._do({"do": "statistics", "on": on})

    def costs(self) -> list[dict[str, Any]]:
        """Return for each program how often it ran and its total time, while statistics were on."""
        return list(self._do({"do": "cost"})["programs"])

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        self.ask(request)
        return self.answer(PATIENCE_SECONDS, no_tick)


def log_argv(instrument: str, attach: str) -> list[str]:
    """Return the command line of a log of the programs in one cgroup."""
    return [instrument, "tcplog", "serve", "--attach", attach]
