"""`sojourn-instrument stream serve`: one process per end, which sends, receives, or simulates both ends.

Sending is asynchronous, so that several senders can run at the same time: `send` begins it, `sent` waits for its
answer. Does not decide what to request, and reads no record.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from sojourn.instruments.conversation import PATIENCE_SECONDS, Conversation, no_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SLOWEST = 3
"""A stream may take this many times its requested time: a sender that is too slow stretches it."""

LEAST_PPS = 10_000
"""A slower flood counts as dead."""


_SECRET = secrets.token_bytes(32)


def session_key(block: int) -> str:
    """Return the session key of a block's frames, 64 bits in hexadecimal digits.

    This process sends it to both ends of the block, and nobody else can guess it.
    """
    return hashlib.blake2b(block.to_bytes(8), key=_SECRET, digest_size=8).hexdigest()


class StreamInstrument(Conversation):
    """A running end of streams."""

    _expected_seconds = 0.0

    def receive(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Open ports and begin to receive; the answer names the engine of each."""
        return self._do("receive", keyed(request), PATIENCE_SECONDS, no_tick)

    def arrived(self, block: int) -> int:
        """Return how many different packets of a reception have arrived so far."""
        return int(self._do("count", {"block": block}, PATIENCE_SECONDS, no_tick)["arrived"])

    def finish_receiving(
        self, block: int, sent: Sequence[Mapping[str, Any]], tick: Callable[[], None]
    ) -> dict[str, Any]:
        """End a reception, with the number of frames sent in each flow; its records are complete on return."""
        return self._do("finish", {"block": block, "sent": list(sent)}, PATIENCE_SECONDS, tick)

    def send(self, request: Mapping[str, Any]) -> None:
        """Begin to send; `sent` returns the result."""
        self._expected_seconds = longest_seconds(request)
        self.ask({"do": "send", **keyed(request)})

    def sent(self, tick: Callable[[], None]) -> dict[str, Any]:
        """Wait until everything has been sent, or the sender was stopped."""
        return self.answer(self._expected_seconds, tick)

    def stop(self) -> None:
        """End a running send early; frames not sent by then count as unsent."""
        self.ask({"do": "stop"})

    def simulate(self, request: Mapping[str, Any], tick: Callable[[], None]) -> dict[str, Any]:
        """Simulate both ends over a path of known behaviour, in simulated time."""
        return self._do("simulate", request, longest_seconds(request), tick)

    def _do(self, what: str, request: Mapping[str, Any], seconds: float, tick: Callable[[], None]) -> dict[str, Any]:
        self.ask({"do": what, **request})
        return self.answer(seconds, tick)


def keyed(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with the session key of its block."""
    return {"key": session_key(request["block"]), **request}


def longest_seconds(request: Mapping[str, Any]) -> float:
    """Return the time after which an instrument that has not finished a request counts as dead."""
    if "at_most_ns" in request and request["at_most_ns"] is not None:
        return float(SLOWEST * request["at_most_ns"] / 1e9 + PATIENCE_SECONDS)
    seconds = (flow["count"] / (flow.get("rate_pps") or LEAST_PPS) for flow in request["flows"])
    return SLOWEST * max(seconds, default=0.0) + PATIENCE_SECONDS


def serve_argv(
    instrument: str, records: Path, part: int, name: str, options: Sequence[str], *, simulated: bool = False
) -> list[str]:
    """Return the command line of one end, `name` in its records, for one part of a run."""
    own = ["--record", str(records), "--part", str(part), "--name", name, "--die-with-parent"]
    return [instrument, "stream", "serve", *own, *(["--simulated"] if simulated else []), *options]
