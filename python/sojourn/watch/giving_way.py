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
import socket
import subprocess
import sys
import time
from pathlib import Path

from sojourn.watch.confine import confine
from sojourn.watch.look import end_with_who_asked

AUTOGROUP = Path("/proc/self/autogroup")
LOWEST = "19"
TRIES = 20
PAUSE_S = 0.1
"""The kernel accepts a weight from users other than root every tenth of a second, of all users together."""

PATIENCE_S = 1800.0
MOST_BYTES = 64 << 20
"""The longest answer of a look."""


class GivingWay:
    """The server's end: one look at a time, whichever run it is at."""

    def __init__(self, folder: Path) -> None:
        self._socket, other = socket.socketpair()
        argv = [sys.executable, "-P", "-m", "sojourn.watch.giving_way", str(folder)]
        with other:
            self._process = subprocess.Popen(
                argv, stdin=other, stdout=other, stderr=subprocess.DEVNULL, start_new_session=True
            )
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def looked(self, run: Path) -> bytes:
        """Return what a look at a run prints; nothing if it did not end within the memory and the time there is."""
        async with self._turn:
            if self._streams is None:
                self._streams = await asyncio.open_connection(sock=self._socket, limit=MOST_BYTES)
            reader, writer = self._streams
            try:
                writer.write(json.dumps(str(run)).encode() + b"\n")
                await writer.drain()
                return await reader.readline()
            except OSError:  # the program was killed, for memory as a rule
                return b""

    def close(self) -> None:
        """End it, with a look that is under way."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


def look_at(run: Path) -> list[str]:
    """Return the command of a look."""
    return [sys.executable, "-P", "-m", "sojourn.watch.look", str(run)]


def main() -> None:
    """Read the path of a run from each line, and write a line with what a look at it prints."""
    lower_session()
    confine([Path(sys.argv[1])])
    end_with_who_asked()  # after `confine`: the kernel forgets it when rights change
    for line in sys.stdin.buffer:
        argv = [*look_at(Path(json.loads(line))), "--give-way"]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
            said = done.stdout.strip()
        except subprocess.TimeoutExpired:
            said = b""
        sys.stdout.buffer.write(said + b"\n")
        sys.stdout.buffer.flush()


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
