"""`sojourn` called within the tests' own process: a program of its own spends most of a short run on its imports.

For commands of which what they do is tested, and not how a process begins or ends. What the instrument does itself
(`probe`, `stream`, …) would take the tests' place.
"""

from __future__ import annotations

import ctypes
import io
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from sojourn.cli import is_by_hand, main

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECONDS = 300.0
CLONE_NEWNET = 0x40000000
THIS_THREAD = Path("/proc/thread-self/ns/net")


class Said(io.TextIOWrapper):
    """What a program prints, as text or as bytes."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", write_through=True)

    def text(self) -> str:
        return self._bytes.getvalue().decode()


def sojourn_here(
    *words: str | Path,
    cwd: Path | None = None,
    net: Path | None = None,
    seconds: float = SECONDS,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `sojourn …` to its end: in a folder, in a network namespace (a file), with more in its environment."""
    argv = ["sojourn", *map(str, words)]
    assert not is_by_hand(argv[1:]), f"it would become the instrument: {argv}"
    out, err = Said(), Said()
    with pytest.MonkeyPatch.context() as patch, chdir(cwd or "."), in_network(net), at_most(seconds):
        patch.setattr(sys, "argv", argv)
        patch.setattr("sojourn.cli.apart.has_rights", lambda: False)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
            main()
    return subprocess.CompletedProcess(argv, int(end.value.code or 0), out.text(), err.text())


def in_network(net: Path | None) -> Any:
    """In a network namespace, for the time of a block of code; in this process's own without one."""
    return nullcontext() if net is None else entered(net)


@contextmanager
def entered(net: Path) -> Iterator[None]:
    own = os.open(THIS_THREAD, os.O_RDONLY)
    try:
        enter(net)
        try:
            yield
        finally:
            join(own)
    finally:
        os.close(own)


def enter(net: Path) -> None:
    other = os.open(net, os.O_RDONLY)
    try:
        join(other)
    finally:
        os.close(other)


def join(descriptor: int) -> None:
    kernel = ctypes.CDLL(None, use_errno=True)
    assert kernel.setns(descriptor, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Let a block of code take no longer: a program of its own would be ended then, too."""

    def give_up(*_: object) -> NoReturn:
        raise TimeoutError(f"not over within {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    began = time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)  # pytest-timeout's own
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001))
