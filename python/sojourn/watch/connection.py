"""A connection to the server of pages: one that asks for nothing is closed, and there is a limited number.

uvicorn waits without end for the first request of a connection, and for the rest of one that has begun; its
`limit_concurrency` refuses requests, and lets the connections be. Every user of the machine can open some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

REQUEST_S = 10.0
"""The time for a whole request, from the begin of a connection or the end of the last answer."""

MOST_CONNECTIONS = 128
"""Of which 32 can be streams of events (server.py); each takes a descriptor."""


class Connection(H11Protocol):
    """A connection, which does not wait for ever."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request; above the limit, close it."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._await_request()

    def _await_request(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(REQUEST_S, self._close_idle)

    def _close_idle(self) -> None:
        if getattr(self.cycle, "response_complete", True):  # it has none before its first request
            self.transport.close()
