"""Look at runs in progress in a session of the lowest weight, so that looking does not disturb a measurement.

Linux weighs sessions against each other before it compares priorities within one (sched(7), "The autogroup feature"): a
program in SCHED_IDLE gets as much of a processor as all programs of another terminal together. A weight is set by
writing below /proc, which the server of pages has given up. So this program starts before that, lowers the weight of
its own session, gives up the same rights, and then starts one look for each line that it reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from sojourn.confine import only_read

AUTOGROUP = Path("/proc/self/autogroup")
LOWEST = "19"
TRIES = 20
PAUSE_S = 0.1
"""The kernel accepts a weight from users other than root every tenth of a second, of all users together."""

PATIENCE_S = 1800.0
SERVER = 0
"""Standard input: a socket to the server, as standard output is."""

LEAVING_S = 5.0
MOST_ASKED = 1 << 16
MOST_BYTES = 64 << 20
"""The longest answer of a look."""


class GivingWay:
    """The server's end: one look at a time, whichever run it is at."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._has_ended = folder, False
        self._turn = asyncio.Lock()
        self._begin()

    def _begin(self) -> None:
        """Start the program. Later than at the begin, the server may not write below /proc: the weight stays."""
        self._socket, other = socket.socketpair()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        argv = [sys.executable, "-P", "-m", "sojourn.watch.giving_way", str(self._folder)]
        with other:
            self._process = subprocess.Popen(
                argv, stdin=other.fileno(), stdout=other.fileno(), stderr=subprocess.DEVNULL, start_new_session=True
            )

    async def looked(self, run: Path) -> bytes:
        """Return what a look at a run prints; nothing if it did not end within the memory and the time there is.

        Nothing, too, if it is longer than MOST_BYTES: its end would be taken for the next look's, so the program begins
        again.
        """
        async with self._turn:
            said = b""
            with suppress(OSError, ValueError):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(sock=self._socket, limit=MOST_BYTES)
                reader, writer = self._streams
                writer.write(json.dumps(str(run)).encode() + b"\n")
                await writer.drain()
                said = await reader.readline()
            if not said.endswith(b"\n") and not self._has_ended:  # killed, for memory as a rule, or too long
                self._leave()
                self._begin()
            return said

    def close(self) -> None:
        """End it, with a look that is under way; by this alone, as Landlock lets no signal through to it."""
        self._has_ended = True
        self._leave()

    def _leave(self) -> None:
        if self._streams is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._streams[1].transport.abort()
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVING_S)


def look_at(run: Path) -> list[str]:
    """Return the command of a look."""
    return [sys.executable, "-P", "-m", "sojourn.watch.look", str(run)]


def main() -> None:
    """Read the path of a run from each line, and write a line with what a look at it prints; end with the server."""
    lower_session()
    only_read([Path(sys.argv[1])])
    while line := os.read(SERVER, MOST_ASKED):
        os.write(sys.stdout.fileno(), looked(Path(json.loads(line))) + b"\n")


def looked(run: Path) -> bytes:
    """Return what a look prints, or nothing: if it takes too long, or the server, silent until then, has ended."""
    argv, until, said = [*look_at(run), "--give-way"], time.monotonic() + PATIENCE_S, bytearray()
    with (
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as look,
        selectors.DefaultSelector() as either,
    ):
        assert look.stdout is not None
        either.register(look.stdout, selectors.EVENT_READ)
        either.register(SERVER, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in either.select(max(0.0, until - time.monotonic()))}
            if SERVER in ready or not ready:
                look.kill()
                return b""
            if not (new := os.read(look.stdout.fileno(), 1 << 16)):
                return bytes(said).strip()
            said += new


def lower_session() -> None:
    """Give this program's session the lowest weight against others, if the kernel weighs sessions."""
    if os.getsid(0) != os.getpid():
        return  # whoever leads the session has other programs in it
    for _ in range(TRIES):
        try:
            AUTOGROUP.write_text(LOWEST, encoding="ascii")
        except BlockingIOError:
            time.sleep(PAUSE_S)
        except OSError:
            return
        else:
            return


if __name__ == "__main__":
    main()
