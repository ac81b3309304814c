"""Access control: only requests with the token, to a name of this host, that only read. Others get 404 or 421.

The port is reachable by every user of the machine and every page in a browser on it. The first part of a path is the
token, which only the user who started the server can read. A page of another site whose name was resolved to 127.0.0.1
(DNS rebinding) sends that name as Host, and is refused. Answers may not be cached or framed, and send no referrer.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

READING = frozenset({"GET", "HEAD"})
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Guard:
    """The access control in front of the pages."""

    def __init__(self, pages: ASGIApp, token: str, port: int) -> None:
        self._pages, self._token = pages, token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # no lifespan, no WebSocket
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        _, _, rest = scope["path"].lstrip("/").partition("/")
        inside = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        await self._pages(inside, receive, with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return PlainTextResponse("This is not a host of that name.\n", 421)
        first, slash, _ = scope["path"].lstrip("/").partition("/")
        if not secrets.compare_digest(first.encode("utf-8", "surrogateescape"), self._token):
            return PlainTextResponse("There is nothing here.\n", 404)
        verb = scope["method"]
        if verb not in READING:
            return PlainTextResponse("This can be read, and nothing else.\n", 405, {"allow": "GET, HEAD"})
        return None if slash else RedirectResponse(f"/{first}/", 307)
