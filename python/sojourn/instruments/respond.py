"""`sojourn-instrument probe respond`: the answering end, one process for every link.

Knows when it listens, not what it receives.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from sojourn.bed.bounded import SilentError, TooLongError, line_of, rest_of
from sojourn.bed.processes import end
from sojourn.errors import MachineError
from sojourn.instruments.conversation import READY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.instruments.conversation import Start

END_SECONDS = 2.0


class Responder:
    """A running responder."""

    def __init__(self, start: Start, argv: list[str]) -> None:
        self._process = start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            if (why := self._why_not_ready()) is not None:
                raise MachineError(f"the responder does not start: {why}")
        except BaseException:
            self._process.kill()
            end(self._process)
            raise

    def stop(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        end(self._process)

    def _why_not_ready(self) -> str | None:
        """Wait for its first line, which reports that it listens; return what is wrong if there is none."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            line_of(self._process.stdout.fileno(), READY_SECONDS)
        except SilentError:
            return f"it does not answer for {READY_SECONDS:.0f} s: is the machine overloaded?"
        except TooLongError:
            return "its first line has no end: are its version and ours the same?"
        except EOFError:
            said = rest_of(self._process.stderr.fileno(), END_SECONDS).decode(errors="replace")
            words = said.strip().splitlines() or ["it says nothing"]
            return words[-1].removeprefix("sojourn-instrument: ")
        return None


def respond_argv(
    instrument: str,
    devices: Sequence[str],
    udp_port: int | None,
    cpu: int,
    *,
    alone: bool,
    amplified: bool = False,
) -> list[str]:
    """Return the command line for raw frames on these interfaces and UDP on that port.

    On a core of its own it polls, which gives the shortest reply time. With `amplified`, responses may be longer than
    requests, to whatever address the device gives their sender; rates are not limited, because a bed has no strangers.
    """
    raw = [word for device in devices for word in ("--raw", device)]
    guard = ["--peer-rate", "0", "--rate", "0", *(["--allow-amplification", "any"] if amplified else [])]
    udp = ["--udp", str(udp_port)] if udp_port is not None else []
    wait = "spin" if alone else "sleep"
    own = ["--cpu", str(cpu), "--wait", wait, "--json", "--die-with-parent"]
    return [instrument, "probe", "respond", *raw, *udp, *guard, *own]
