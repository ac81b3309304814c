"""What programs say, read within a limit of time and of bytes: no program and no host can hang this one or fill memory.

Reads the descriptors of pipes and sockets, not Python's streams, whose `readline` waits as long as a line has no end.
Knows no program, and parses nothing.
"""

from __future__ import annotations

import fcntl
import os
import select
import selectors
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_BYTES = 64 << 20
"""The longest answer of a program or of a host."""

FIRST_BYTES = 1 << 16
"""The longest line of a program that only reports that it is ready."""

MOST_SAID = 1 << 20
"""How much of a program's error output is kept: its end."""

TICK_SECONDS = 1.0
_AT_ONCE = 1 << 16


class SilentError(TimeoutError):
    """No whole line came in time."""


class TooLongError(ValueError):
    """More bytes came than an answer has."""


def line_of(
    descriptor: int,
    seconds: float,
    most_bytes: int = FIRST_BYTES,
    unread: bytearray | None = None,
    tick: Callable[[], None] = lambda: None,
) -> bytes:
    """Return the next line of a pipe or socket, without its end; `tick` is called every second meanwhile.

    `unread` keeps what was read beyond the line, for the next call; without it nothing is read beyond. Raises
    SilentError if the line is not whole within the time, TooLongError if it is longer, and EOFError if it has no end.
    """
    kept, at_once = (bytearray(), 1) if unread is None else (unread, _AT_ONCE)
    until, next_tick = time.monotonic() + seconds, time.monotonic() + TICK_SECONDS
    searched, is_late = 0, False
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (end := kept.find(b"\n", searched)) < 0:
            searched = len(kept)
            if searched > most_bytes:
                raise TooLongError(f"more than {most_bytes} bytes without an end of line")
            if is_late:
                raise SilentError(f"no line within {seconds:.0f} s")
            if time.monotonic() >= next_tick:
                tick()
                next_tick = time.monotonic() + TICK_SECONDS
            is_late = time.monotonic() >= until  # what is there by now is still read
            if selector.select(max(0.0, min(until, next_tick) - time.monotonic())):
                kept += _read(descriptor, at_once)
    line = bytes(kept[:end])
    del kept[: end + 1]
    return line


def _read(descriptor: int, at_once: int) -> bytes:
    if not (new := os.read(descriptor, at_once)):
        raise EOFError
    return new


def first_line(process: subprocess.Popen[Any], seconds: float) -> str:
    """Return the first line that a program prints within this time; empty if it prints no whole one."""
    assert process.stdout is not None
    try:
        return line_of(process.stdout.fileno(), seconds).decode(errors="replace").strip()
    except (SilentError, TooLongError, EOFError):
        return ""


def rest_of(descriptor: int, seconds: float, most_bytes: int = MOST_SAID) -> bytes:
    """Return the last bytes before the end of a stream; of one that does not end, those of this time."""
    said, until = bytearray(), time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and selector.select(left):
            if not (new := os.read(descriptor, _AT_ONCE)):
                break
            said += new
            del said[:-most_bytes]
    return bytes(said)


def run(argv: Sequence[str], given: bytes, seconds: float, most_bytes: int) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end as `subprocess.run` does, and keep the end of its error output.

    It is killed with TooLongError once it has printed more bytes, and with TimeoutExpired after this time.
    """
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        try:
            said, words = _talk(process, given, time.monotonic() + seconds, most_bytes)
        except BaseException as error:
            process.kill()
            if isinstance(error, SilentError):
                raise subprocess.TimeoutExpired(argv, seconds) from None
            raise
    return subprocess.CompletedProcess(argv, process.returncode, said, words)


def outputs_of(process: subprocess.Popen[Any], seconds: float, most_bytes: int = MOST_BYTES) -> tuple[str, str]:
    """Return what a program that was started with pipes prints until its end, and the end of its error output.

    It is killed with TooLongError once it has printed more bytes, and with SilentError after this time.
    """
    try:
        said, words = _talk(process, b"", time.monotonic() + seconds, most_bytes)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return said.decode(errors="replace"), words.decode(errors="replace")


def _talk(process: subprocess.Popen[Any], given: bytes, until: float, most_bytes: int) -> tuple[bytes, bytes]:
    """Write a command's input, and return both of its outputs once it has ended; raises SilentError if it has not."""
    said, words, left = bytearray(), bytearray(), memoryview(given)
    reads, writes = selectors.EVENT_READ, selectors.EVENT_WRITE
    pipes = ((process.stdin, writes, None), (process.stdout, reads, said), (process.stderr, reads, words))
    with selectors.DefaultSelector() as selector:
        for pipe, event, kept in pipes:
            if pipe is not None:
                selector.register(pipe, event, kept)
        while selector.get_map():
            if (seconds := until - time.monotonic()) <= 0:
                raise SilentError
            for key, _ in selector.select(seconds):
                if key.data is None:
                    left = _written(key.fd, left)
                    is_done = not left
                else:
                    is_done = not (new := os.read(key.fd, _AT_ONCE))
                    key.data.extend(new)
                if is_done:
                    selector.unregister(key.fileobj)
                if is_done and key.data is None and process.stdin is not None:
                    process.stdin.close()
            if len(said) > most_bytes:
                raise TooLongError(f"more than {most_bytes} bytes")
            del words[:-MOST_SAID]
    _await_end(process, until)
    return bytes(said), bytes(words)


def _await_end(process: subprocess.Popen[Any], until: float) -> None:
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise SilentError from None


def _written(descriptor: int, left: memoryview) -> memoryview:
    """Write as much as a pipe takes without waiting; return what is left, nothing if nobody reads it."""
    try:
        return left[os.write(descriptor, left[: select.PIPE_BUF]) :] if left else left
    except BrokenPipeError:
        return left[:0]


class ErrorOutput:
    """A file for the error output of a program, whose end is kept: for `stderr=`, as long as the program runs."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program
        # At its end wherever that is by then: the file becomes shorter while the program writes.
        fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) | os.O_APPEND)

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._file.fileno()

    def cut(self) -> None:
        """Drop the beginning of one that has become long."""
        if os.fstat(self.fileno()).st_size > 2 * MOST_SAID:
            kept = self._end()
            os.ftruncate(self.fileno(), 0)
            with suppress(OSError):  # a full disk, which is no reason to end
                os.write(self.fileno(), kept)

    def lines(self) -> list[str]:
        """Return the last lines, without empty ones."""
        return [line for line in self._end().decode(errors="replace").splitlines() if line.strip()]

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def _end(self) -> bytes:
        size = os.fstat(self.fileno()).st_size
        return os.pread(self.fileno(), MOST_SAID, max(0, size - MOST_SAID))
