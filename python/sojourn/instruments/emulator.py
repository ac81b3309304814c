"""`sojourn-instrument emulate run`: a bridge between two ports, with requests while it runs.

Requests go over its control socket, one JSON line each way; its standard output reports that it is ready, and how it
ended. Does not decide what to request, and reads no record.
"""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.bed.bounded import MOST_BYTES, SilentError, TooLongError, line_of, outputs_of
from sojourn.bed.ssh import OUR_INSTRUMENT, reading
from sojourn.errors import DoubtfulError, MachineError, RequestError, SojournError
from sojourn.instruments.conversation import Conversation, Start, error_of
from sojourn.profiles import offer
from sojourn.records.decode import json_value

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

ANSWER_SECONDS = 10.0
"""An emulator answers a request at once; a busy machine may delay the answer."""

REPLAY_SECONDS = 600.0

NOBODY = -1
"""The block of the packets between two trials, which are not recorded."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How an emulator is started."""

    name: str
    forward: str | None = None
    """A pipe's configuration string, "" for an idle pipe; None for no pipe."""
    backward: str | None = None
    config: str | None = None
    seed: int = 1
    engine: str = "auto"
    cpu: int | None = None
    spin: bool = False
    fifo: bool | None = None
    """Real-time priority: required, forbidden, or None: used if permitted."""
    budget: str | None = None
    memory: str | None = None
    compensate_ns: int = 0
    """Path delay compensation: the delay outside the emulator, subtracted from each departure."""
    log: Path | None = None
    part: int = 0


class EmulatorInstrument(Conversation):
    """A running emulator; after construction, frames pass."""

    def __init__(self, start: Start, argv: list[str], connect: Callable[[float], socket.socket]) -> None:
        self._connect = connect
        self._socket: socket.socket | None = None
        self._unread = bytearray()
        super().__init__(start, argv)

    def set(self, words: str) -> dict[str, Any]:
        """Replace every pipe in one step without packet loss; the answer has the pipes as they were understood."""
        return self._do({"do": "set", "all": True, "words": words, "replace": True})

    def begin(self, block: int, *, keep: bool) -> dict[str, Any]:
        """Begin this block; the answer has the counters of the previous one."""
        return self._do({"do": "begin", "block": block, "keep": keep})

    def show(self) -> dict[str, Any]:
        """Return its pipes with their counters and their accuracy so far."""
        return self._do({"do": "show"})

    def require_log(self, said: dict[str, Any]) -> None:
        """Refuse a log that has ended before it, on a full disk: it passes packets all the same."""
        with reading("the emulator", OUR_INSTRUMENT):
            why = ((said.get("report") or {}).get("log") or {}).get("stopped")
        if why:
            raise self._error(DoubtfulError.status, str(why))

    def stop(self) -> dict[str, Any] | None:
        """End it; return its summary, if it wrote one."""
        asked = False
        with suppress(SojournError):
            self._do({"do": "stop"})
            asked = True
        if not asked and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        left: dict[str, Any] | None = None
        for answer in self._rest():
            if answer["event"] == "error":
                break
            left = answer
        self._close()
        self._reap()
        return left

    def kill(self) -> None:
        self._close()
        super().kill()

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its answer; a refusal is an error with its sentence."""
        self._said.cut()
        try:
            control = self._connected()
            control.sendall(json.dumps(request).encode() + b"\n")
            answer = json_value(line_of(control.fileno(), ANSWER_SECONDS, MOST_BYTES, self._unread))
        except TimeoutError:
            raise MachineError(f"the emulator does not answer for {ANSWER_SECONDS:.0f} s: is it overloaded?") from None
        except (OSError, EOFError):
            raise self._death() from None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            message = "the emulator gave an invalid answer: are its version and ours the same?"
            raise self._error(MachineError.status, message)
        if "error" in answer:
            raise RequestError(str(answer["error"]))
        return answer

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = self._connect(ANSWER_SECONDS)
        return self._socket

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def explain(instrument: str, options: Sequence[str], become: Callable[[list[str]], list[str]] = list) -> dict[str, Any]:
    """Explain options of `emulate run` without starting anything: `config`, and `pipes` by name and words.

    Errors in them are raised. `become` converts a command to one that runs as the requesting user: it reads files that
    the options name, and quotes them.
    """
    offer()
    argv = become([instrument, "emulate", "explain", *options, "--json"])
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", check=False, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"'{instrument} emulate explain' did not end within {ANSWER_SECONDS:.0f} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"it said nothing (status {done.returncode})"]
        raise error_of(done.returncode, said[-1].removeprefix("sojourn-instrument: "))
    with reading("emulate explain", OUR_INSTRUMENT):
        return dict(json_value(done.stdout))


def replay(start: Start, instrument: str, records: Path, name: str, part: int) -> list[dict[str, Any]]:
    """Replay one log: the engine must give the same dispositions and intended departures again."""
    argv = [instrument, "emulate", "replay", str(records), "--json", "--name", name, "--part", str(part)]
    process = start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        out, why = outputs_of(process, REPLAY_SECONDS)
    except SilentError:
        raise MachineError(f"the replay of {records} did not end within {REPLAY_SECONDS:.0f} s") from None
    except TooLongError as error:
        raise MachineError(f"the replay of {records} prints without end ({error})") from None
    where = getattr(process, "where", None)
    with reading("emulate replay" if where is None else f"{where}: emulate replay", OUR_INSTRUMENT):
        said = [json_value(line) for line in out.splitlines() if line.startswith("{")]
    if said:
        return said
    words = why.strip().splitlines() or [f"it said nothing (status {process.returncode})"]
    return [{"identical": None, "sentence": words[-1].removeprefix("sojourn-instrument: ")}]


def emulate_argv(instrument: str, ports: Sequence[str], control: str, settings: Settings) -> list[str]:
    """Return the command line of one emulator between two ports; files of installed packages are available to it."""
    offer()
    given = {
        "--forward": settings.forward,
        "--backward": settings.backward,
        "--config": settings.config,
        "--engine": None if settings.engine == "auto" else settings.engine,
        "--cpu": settings.cpu,
        "--budget": settings.budget,
        "--memory": settings.memory,
        "--log": settings.log,
        "--compensate": f"{settings.compensate_ns}ns" if settings.compensate_ns else None,
    }
    options = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    # With --spin it never sleeps, and the kernel throttles real-time programs that never sleep.
    # The bed controls what idle processors do, so that it is the same for each path.
    priority = {None: [], True: ["--fifo"], False: ["--no-fifo"]}[settings.fifo]
    flags = ["--spin"] if settings.spin else ["--sleep", "--idle", "sleep", *priority]
    own = ["--name", settings.name, "--part", str(settings.part), "--seed", str(settings.seed), "--control", control]
    return [instrument, "emulate", "run", *ports, "--json", "--die-with-parent", *own, *options, *flags]
