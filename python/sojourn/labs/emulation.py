"""An emulated path between two ports: its configuration and its report; and one between the user's interfaces."""

from __future__ import annotations

import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from sojourn.binary import find_instrument
from sojourn.errors import DoubtfulError, RequestError, SojournError
from sojourn.instruments.emulator import EmulatorInstrument, Settings, emulate_argv, explain
from sojourn.labs.pipe import Pipe, words_of
from sojourn.records.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "emulate"
"""The name in its records."""

SOCKET = "c"
"""The control socket in its folder: short, since a socket's path has 107 characters at most."""


@dataclass(frozen=True)
class Emulation:
    """A running emulator."""

    emulator: EmulatorInstrument

    def set(self, words: str | None = None, **pipe: Unpack[Pipe]) -> None:
        """Make the path another, both directions, between two packets and without losing one: keywords, or words.

        Raises RequestError where both are given: which of them holds would be a guess.
        """
        if words is not None and pipe:
            raise RequestError(f"words and keywords ({', '.join(pipe)}) at once: give one of them")
        self.emulator.set(words_of(pipe) if words is None else words)

    def show(self) -> dict[str, Any]:
        """What `sojourn emulate show` tells, as the emulator says it: configuration, counters, accuracy."""
        return self.emulator.show()

    def require_path(self) -> None:
        """Raises DoubtfulError where the emulator has ended: what ran since then had no path."""
        try:
            self.emulator.show()
        except SojournError as error:
            raise DoubtfulError(f"the emulated path ended meanwhile: {error}") from error


@contextmanager
def emulate(  # noqa: PLR0913 - all that an emulator can be configured with
    left: str,
    right: str,
    *,
    forward: str | None = None,
    backward: str | None = None,
    config: Path | str | None = None,
    seed: int = 1,
    log: Path | None = None,
    spin: bool = False,
    **pipe: Unpack[Pipe],
) -> Iterator[Emulation]:
    """An emulated path between two interfaces of this thread's network namespace: `sojourn emulate LEFT RIGHT …`.

    For keywords see `lab`. Raises RequestError where the words are wrong, and MachineError where it cannot be.
    """
    settings = settings_of(pipe, forward, backward, config, seed, log, spin=spin)
    instrument = find_instrument()
    require_understood(instrument, settings)
    with scratch("emu") as folder:
        control = str(folder / SOCKET)
        argv = emulate_argv(instrument, [left, right], control, settings)
        emulator = EmulatorInstrument(_start, argv, partial(_connect, control))
        with until_the_end(emulator):
            yield Emulation(emulator)


def settings_of(  # noqa: PLR0913 - all that an emulator can be configured with
    pipe: Pipe,
    forward: str | None,
    backward: str | None,
    config: Path | str | None,
    seed: int,
    log: Path | None,
    *,
    spin: bool,
) -> Settings:
    """Return an emulator's configuration: the keywords apply to directions without a string of their own."""
    own = words_of(pipe)
    if config is not None:
        if own or forward is not None or backward is not None:
            raise RequestError(f"{config} says what the pipes are: leave out the other words")
        return Settings(NAME, config=str(config), seed=seed, log=log, spin=spin)
    both = [own if words is None else words for words in (forward, backward)]
    return Settings(NAME, both[0], both[1], seed=seed, log=log, spin=spin)


def require_understood(instrument: str, settings: Settings) -> None:
    """Raise RequestError for errors in the configuration, before anything is built."""
    given = {"--forward": settings.forward, "--backward": settings.backward, "--config": settings.config}
    explain(instrument, [f"{option}={value}" for option, value in given.items() if value is not None])


@contextmanager
def until_the_end(emulator: EmulatorInstrument) -> Iterator[None]:
    """End an emulator with the block; kill it if the block fails."""
    try:
        yield
    except BaseException:
        emulator.kill()
        raise
    emulator.stop()


def _start(argv: list[str], **popen: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen(argv, **popen)


def _connect(path: str, seconds: float) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(seconds)
    line.connect(path)
    return line
