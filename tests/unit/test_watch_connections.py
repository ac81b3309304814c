"""Connections to the server of pages: those that ask for nothing whole are closed, streams are not; their limit.

Without root and without a browser: uvicorn's protocol on a port of loopback.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from sojourn.watch import connection
from sojourn.watch.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONG = 30.0
HEAD = b"HTTP/1.1\r\nHost: localhost\r\n\r\n"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """A page, and at /events a stream that does not end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/events":
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await send({"type": "http.response.body", "body": b"a page"})


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, ServerState]]:
    """A port, and what the server knows of its connections."""
    config = uvicorn.Config(pages, lifespan="off", access_log=False, log_config=None, ws="none", http=Connection)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], state
    finally:
        server.close()
        while state.connections:
            await asyncio.sleep(0)


@asynccontextmanager
async def connected(port: int, asked: bytes = b"") -> AsyncIterator[Pair]:
    """A connection on which this was asked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(asked)
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def heard(reader: asyncio.StreamReader, until: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(until), LONG)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes the connection, which it has to."""
    with suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), LONG)
    return b""


@pytest.mark.parametrize("asked", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: "])
def test_connection_without_a_whole_request_is_closed(asked: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn keeps such a connection for ever."""
    monkeypatch.setattr(connection, "REQUEST_S", 0.1)

    async def said() -> bytes:
        async with serving() as (port, _), connected(port, asked) as (reader, _):
            return await rest(reader)

    assert asyncio.run(said()) == b""


def test_connection_with_half_a_second_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.3)

    async def said() -> bytes:
        async with serving() as (port, _), connected(port, b"GET / " + HEAD) as (reader, writer):
            assert b"a page" in await heard(reader, b"\r\n0\r\n\r\n")
            writer.write(b"GET / HT")
            return await rest(reader)

    assert asyncio.run(said()) == b""


def test_stream_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.05)

    async def is_open() -> bool:
        async with serving() as (port, _), connected(port, b"GET /events " + HEAD) as (reader, _):
            await heard(reader, b"begun")
            await heard(reader, b"\r\n")
            try:
                return bool(await asyncio.wait_for(reader.read(1), 0.5))
            except TimeoutError:
                return True

    assert asyncio.run(is_open())


def test_connections_above_the_limit_are_closed_until_others_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 2)

    async def answers() -> list[bytes]:
        found = []
        async with serving() as (port, state), connected(port, b"GET /events " + HEAD) as (first, _):
            await heard(first, b"begun")
            async with connected(port, b"GET /events " + HEAD) as (second, _):
                await heard(second, b"begun")
                async with connected(port, b"GET / " + HEAD) as (third, _):
                    found.append(await rest(third))
            while len(state.connections) > 1:
                await asyncio.sleep(0)
            async with connected(port, b"GET / " + HEAD) as (fourth, _):
                found.append(await heard(fourth, b"a page"))
        return found

    refused, answered = asyncio.run(answers())
    assert refused == b""
    assert answered.endswith(b"a page")
