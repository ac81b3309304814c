"""Serve the pages on 127.0.0.1: one of a run, or of a folder of runs an index and a page each, with their events.

A stream of server-sent events sends changes, at most once a second, and a comment from time to time; a browser whose
stream has ended reconnects. Nothing is stored, and no request changes anything.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import signal
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from sojourn.confine import only_read
from sojourn.errors import MachineError, RequestError
from sojourn.export.prometheus import CONTENT_TYPE, exposition, text_of
from sojourn.records.folder import RunFolder
from sojourn.watch.connection import Connection
from sojourn.watch.giving_way import GivingWay
from sojourn.watch.guard import Guard
from sojourn.watch.page import RUN, RUNS, page
from sojourn.watch.place import remember, remembered
from sojourn.watch.runs import UNREAD, Runs, is_run
from sojourn.watch.watched import Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

LOOPBACK = "127.0.0.1"
EVERY_S = 1.0
INDEX_EVERY_S = 2.0
LISTING_S = 0.5
"""The time for reading logs before a list or metrics are answered; the rest is read the next time."""

HURRY_S = 0.05
"""The time between two events while logs are unread."""

HEARTBEAT_S = 15.0
MOST_STREAMS = 32
GRACE_S = 1


class Pages:
    """The handlers of requests, behind the guard."""

    def __init__(self, folder: Path, giving_way: GivingWay | None) -> None:
        self.folder, self._giving_way = folder, giving_way
        self._runs = Runs(folder)
        self._watched: dict[str, Watched] = {}
        self._streams = 0
        self.is_over: Callable[[], bool] = lambda: False
        """Whether the server is ending, which ends the streams."""

    def app(self) -> Starlette:
        """Return the application with its routes."""
        routes = [Route("/", self.first), Route("/events", self.first_events)]
        routes += [Route("/metrics", self.first_metrics), Route("/{name}/metrics", self.run_metrics)]
        routes += [Route("/{name}/", self.run), Route("/{name}/events", self.run_events)]
        return Starlette(routes=routes)

    @property
    def single(self) -> bool:
        """Whether the folder is a run's; an empty one may become one."""
        return is_run(self.folder)

    async def first(self, request: Request) -> Response:
        """Return the page of the folder itself."""
        return await (self.run(request) if self.single else self.index(request))

    async def first_events(self, request: Request) -> Response:
        """Return the events of the folder itself."""
        return await (self.run_events(request) if self.single else self.index_events(request))

    async def index(self, request: Request) -> Response:
        """Return the list of runs."""
        del request
        return HTMLResponse(page(RUNS, self.folder.resolve().name))

    async def index_events(self, request: Request) -> Response:
        """Stream the list as it changes."""
        return self._stream(request, self._listed, INDEX_EVERY_S)

    def _listed(self) -> dict[str, Any]:
        """Return the runs of the folder; `begun` if it has become a run's folder, which has another page."""
        runs = self._runs.told(LISTING_S)
        return {"runs": runs, "begun": self.single, "unread": sum(one["state"] == UNREAD for one in runs)}

    async def run(self, request: Request) -> Response:
        """Return the page of a run."""
        watched = self._of(request)
        if watched is None:
            return PlainTextResponse("There is no such run here.\n", 404)
        return HTMLResponse(page(RUN, watched.folder.path.resolve().name, "" if self.single else "../"))

    async def run_events(self, request: Request) -> Response:
        """Stream the state of a run as it changes."""
        watched = self._of(request)
        if watched is None:
            return PlainTextResponse("There is no such run here.\n", 404)
        return self._stream(request, watched.told, EVERY_S)

    async def first_metrics(self, request: Request) -> Response:
        """Return metrics of the folder for Prometheus: of a run all, of a folder of runs the state of each."""
        if self.single:
            return await self.run_metrics(request)
        return PlainTextResponse(text_of(self._runs.standing(LISTING_S)), media_type=CONTENT_TYPE)

    async def run_metrics(self, request: Request) -> Response:
        """Return the metrics of a run for Prometheus."""
        watched = self._of(request)
        if watched is None:
            return PlainTextResponse("There is no such run here.\n", 404)
        so_far = watched.so_far(LISTING_S)
        if so_far is None:
            return PlainTextResponse("The run's log is long and is still being read: ask again.\n", 503)
        try:
            text = exposition(watched.folder, so_far, is_served=True)
        except RequestError as error:
            return PlainTextResponse(f"{error}\n", 503)
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    def close(self) -> None:
        """End running evaluations."""
        for one in self._watched.values():
            one.close()
        if self._giving_way is not None:
            self._giving_way.close()

    def _of(self, request: Request) -> Watched | None:
        """Return the requested run, if it is listed."""
        name = request.path_params.get("name", "")
        if name not in self._watched:
            if name and (self.single or name not in self._runs.names()):
                return None
            self._watched[name] = Watched(RunFolder(self.folder / name if name else self.folder), self._giving_way)
        return self._watched[name]

    def _stream(self, request: Request, tell: Callable[[], dict[str, Any]], every_s: float) -> Response:
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are open.\n", 503)
        self._streams += 1  # now, not at its first event: several requests can come before that
        return _Stream(self._events(request, tell, every_s), self._ended)

    def _ended(self) -> None:
        self._streams -= 1

    async def _events(self, request: Request, tell: Callable[[], dict[str, Any]], every_s: float) -> AsyncIterator[str]:
        yield "retry: 1500\n\n"
        last, silent_s = "", 0.0
        while not self.is_over() and not await request.is_disconnected():
            told = tell()
            now = json.dumps(told, allow_nan=False, separators=(",", ":"))
            if now != last:
                yield f"data: {now}\n\n"
                last, silent_s = now, 0.0
            elif silent_s >= HEARTBEAT_S:
                yield ": nothing new\n\n"
                silent_s = 0.0
            pause = HURRY_S if told.get("unread") else every_s
            await asyncio.sleep(pause)
            silent_s += pause


class _Stream(StreamingResponse):
    """Events, and what is to be done when no more are sent, however that came about."""

    def __init__(self, events: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def serve(folder: Path, port: int, *, looks: bool, say: Callable[[str, list[str]], None]) -> None:
    """Serve a run, or a folder of runs, until interrupted; `say` gets the address, and notes for the user."""
    if not folder.is_dir():
        raise RequestError(f"{folder} is not there: expected a run folder, or a folder that holds some")
    listening = listen(port, remembered(folder))
    there, token = listening.getsockname()[1], secrets.token_urlsafe(24)
    remember(folder, there)
    pages = Pages(folder.resolve(), GivingWay(folder.resolve()) if looks else None)
    config = uvicorn.Config(
        Guard(pages.app(), token, there), lifespan="off", access_log=False, log_level="warning", ws="none",
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=GRACE_S, loop="asyncio", http=Connection,
    )  # fmt: skip
    server = uvicorn.Server(config)
    pages.is_over = lambda: server.should_exit
    for one in (signal.SIGINT, signal.SIGTERM):
        # Set before uvicorn sets its own handlers: an exception could be lost in a library that is being imported.
        signal.signal(one, lambda *_: setattr(server, "should_exit", True))
    less = only_read([folder.resolve()])
    say(f"http://{LOOPBACK}:{there}/{token}/", [] if less is None else [less])
    try:
        server.run(sockets=[listening])
    finally:
        pages.close()


def listen(port: int, before: int) -> socket.socket:
    """Open a loopback port: the requested one, else the last one if it is free, else any."""
    for one in [port] if port else [before, 0] if before else [0]:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, one))
        except OSError as error:
            listening.close()
            if before and one == before and not port:
                continue
            why = "it is taken: choose another" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
            raise MachineError(f"port {one} of {LOOPBACK} cannot be had: {why}") from error
        listening.listen(64)
        return listening
    raise AssertionError("unreachable")
