"""`sojourn-instrument tcp serve`: a TCP application on one host, which listens or sends.

Sending is answered after everything was acknowledged. Does not decide what to request, and reads no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.instruments.conversation import PATIENCE_SECONDS, Conversation, no_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DRAIN_SECONDS = 70.0
"""Slightly more than the instrument's own wait for the last acknowledgements."""


class TcpInstrument(Conversation):
    """A running application."""

    def listen(self, block: int, port: int, connections: int, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to accept connections."""
        asked = {"block": block, "at": str(port), "connections": connections, "settings": dict(settings)}
        self.ask({"do": "listen", **asked})
        return self.answer(PATIENCE_SECONDS, no_tick)

    def send(self, request: Mapping[str, Any], seconds: float, tick: Callable[[], None]) -> dict[str, Any]:
        """Connect and send, for about this long; return the result of each connection."""
        self.ask({"do": "send", **request})
        return self.answer(seconds + DRAIN_SECONDS + PATIENCE_SECONDS, tick)

    def finish_listening(self, block: int, stream: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Wait for the connections to end; return the result of each.

        `stream`: the trial of streams that they belong to.
        """
        self.ask({"do": "finish", "block": block} | ({} if stream is None else {"stream": dict(stream)}))
        return self.answer(PATIENCE_SECONDS, no_tick)


def tcp_argv(instrument: str, records: Path, part: int, name: str, cpu: int | None, *options: str) -> list[str]:
    """Return the command line of one end, `name` in its records, for one part of a run.

    Options: `--punctual` raises its priority, `--streams` makes it record trials of streams.
    """
    own = ["--record", str(records), "--part", str(part), "--name", name, "--die-with-parent"]
    return [instrument, "tcp", "serve", *own, *options, *([] if cpu is None else ["--cpu", str(cpu)])]
