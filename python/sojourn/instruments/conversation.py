"""A running instrument with requests on its standard input and answers on its standard output, one JSON line each.

Hides the pipes and the signs of its death. Does not decide what to request, and reads no record.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from sojourn.bed.bounded import MOST_BYTES, ErrorOutput, SilentError, TooLongError, line_of
from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

READY_SECONDS = 15.0
PATIENCE_SECONDS = 30.0
"""The time added to a request's own duration before the instrument counts as dead: the machine may be busy."""

REST_SECONDS = 2 * PATIENCE_SECONDS
MOST_REST = 10_000
"""The time for answers that nobody has read when an instrument ends, and their number: it may go on answering."""

DEATH = "was ended by"

ENDED_HERE: WeakSet[subprocess.Popen[Any]] = WeakSet()
"""The processes that this program itself has killed: nobody else did."""

ERRORS: dict[int, type[SojournError]] = {2: RequestError, 3: MachineError, 4: DoubtfulError}


class NoAnswerError(MachineError):
    """It has ended, or does not answer in time: what it answers later would be taken for another answer."""


class Start(Protocol):
    """Starts a program where the instrument runs: on a bed's host, or on this machine."""

    def __call__(self, argv: list[str], **popen: Any) -> subprocess.Popen[Any]: ...


def no_tick() -> None:
    """Do nothing, in waits that nobody watches."""


class Conversation:
    """One process and its pipes, after it has reported that it is ready."""

    def __init__(self, start: Start, argv: list[str]) -> None:
        self._called = called(argv)
        self._said = ErrorOutput()
        self._process = start(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, start_new_session=True
        )
        self._pending = bytearray()
        try:
            self.ready: dict[str, Any] = self.answer(READY_SECONDS, no_tick)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process id; the process is in the network namespace of its host."""
        return self._process.pid

    def ask(self, request: dict[str, Any]) -> None:
        """Send one request, whose answer `answer` must read."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def answer(self, seconds: float, tick: Callable[[], None]) -> dict[str, Any]:
        """Return the next line of its output; an error in it is raised. `tick` is called every second meanwhile."""
        line = self._line(seconds, tick)
        try:
            answer = parse(line)
        except MachineError as error:
            raise self._error(error.status, str(error)) from None
        if answer["event"] == "error":
            raise self._error(*refusal_of(answer))
        return answer

    def finish(self, *, at_once: bool = False) -> list[dict[str, Any]]:
        """Let it end: after its present request, or at once with its present results. Return unread answers."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if at_once and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        left = list(self._rest())
        self._reap()
        return left

    def kill(self) -> None:
        """Kill it; one that has ended is left alone."""
        if self._process.poll() is None:
            ENDED_HERE.add(self._process)
            self._process.kill()
        self._reap()

    def _rest(self) -> Iterator[dict[str, Any]]:
        """Yield answers up to its end; of one that goes on answering, a limited number for a limited time."""
        until, room_bytes = time.monotonic() + REST_SECONDS, MOST_BYTES
        with suppress(SojournError):
            for _ in range(MOST_REST):
                line = self._line(min(PATIENCE_SECONDS, until - time.monotonic()), no_tick)
                room_bytes -= len(line)
                if room_bytes < 0:
                    return
                yield parse(line)

    def _reap(self) -> None:
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._said):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _line(self, seconds: float, tick: Callable[[], None]) -> bytes:
        """Return the next line of its output."""
        assert self._process.stdout is not None

        def beside() -> None:
            self._said.cut()
            tick()

        self._said.cut()
        try:
            return line_of(self._process.stdout.fileno(), seconds, MOST_BYTES, self._pending, beside)
        except EOFError:
            raise self._death() from None
        except SilentError:
            why = f"does not answer for {seconds:.0f} s: is the machine overloaded?"
            raise NoAnswerError(f"{self._called} {why}") from None
        except TooLongError:
            why = f"gave an answer of more than {MOST_BYTES >> 20} MiB: are its version and ours the same?"
            raise NoAnswerError(f"{self._called} {why}") from None

    def _death(self) -> SojournError:
        """Return an error for its end, with its last output if there is any."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        if (lost := getattr(self._process, "lost", None)) is not None:  # a program on another host
            return MachineError(lost)
        status = self._process.returncode
        if status is not None and status < 0:  # what it said before is no reason
            return NoAnswerError(f"{self._called} {DEATH} {signal.Signals(-status).name}")
        if words := self._said.lines():
            return self._error(status or 3, words[-1].removeprefix("sojourn-instrument: "))
        return NoAnswerError(f"{self._called} ended without a word (status {status})")

    def _error(self, status: int, message: str) -> SojournError:
        """Return an error in its words, with the name of its host if that is another one."""
        where = getattr(self._process, "where", None)
        return error_of(status, message if where is None else f"{where}: {message}")


def called(argv: Sequence[str]) -> str:
    """Return the name of an instrument's command: "`sojourn-instrument tcp serve`"."""
    words = takewhile(str.isalpha, argv[1:3])
    return f"`{' '.join(('sojourn-instrument', *words))}`"


def error_of(status: int, message: str) -> SojournError:
    """Return the error of an exit status; an unknown status counts as a failure of the machine."""
    return ERRORS.get(status, MachineError)(message)


def refusal_of(answer: dict[str, Any]) -> tuple[int, str]:
    """Return status and sentence of an instrument's error; if they are missing, it counts as one of the machine."""
    status, message = answer.get("status"), answer.get("message")
    return (status if isinstance(status, int) else MachineError.status), str(message or "an error without a sentence")


def parse(line: bytes) -> dict[str, Any]:
    """Parse one answer."""
    try:
        answer = json_value(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "event" not in answer:
        raise MachineError(f"the instrument gave an invalid answer: {line[:80]!r}: are its version and ours the same?")
    return answer


def place_options(cpu: int | None, wait: str | None, *, fifo: bool) -> list[str]:
    """Return the options for core, waiting and priority of an instrument."""
    return [
        *(["--cpu", str(cpu)] if cpu is not None else []),
        *(["--wait", wait] if wait else []),
        *(["--fifo"] if fifo else []),
    ]
