"""`sojourn uplink`: an emulated path between this machine and the network at one of its interfaces."""

from __future__ import annotations

import signal
import subprocess
import sys

from sojourn.binary import find_instrument
from sojourn.cli.lab import attend
from sojourn.errors import RequestError

TAKE_OVER = "--take-over"
NOT_HERE = frozenset({"--redirect", "--backend", "--detour", "--ready-fd", "--die-with-parent"})
"""Options of `sojourn emulate run` that concern its ports or its parent."""


def uplink(words: list[str]) -> int:
    """Emulate until a signal arrives or the time is over; return the emulator's exit status."""
    interface, options, take_over = read(words)
    from sojourn.labs.uplink import detour

    with detour(interface, take_over=take_over) as made:
        argv = [find_instrument(), "emulate", "run", *made.options, *options, "--die-with-parent"]
        print(
            f"sojourn: {interface} is emulated: forward is what this machine sends by it, backward what comes in",
            file=sys.stderr,
        )
        for stop in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(
                stop, signal.SIG_IGN
            )  # for the emulator too: a stopped one would hold all that the machine sends
        return attend(subprocess.Popen(["sojourn", *argv[1:]], executable=argv[0]))


def read(words: list[str]) -> tuple[str, list[str], bool]:
    """Return the interface, the emulator's options, and whether an interface in use may be taken over."""
    take_over = TAKE_OVER in words
    rest = [word for word in words if word != TAKE_OVER]
    if not rest or rest[0].startswith("-"):
        raise RequestError("name an interface first: `sojourn uplink eth0 --delay 20ms`")
    for word in rest[1:]:
        name = word.partition("=")[0]
        if name in NOT_HERE:
            raise RequestError(f"{name} is not for an uplink: `sojourn emulate` has it, between two ports")
    return rest[0], rest[1:], take_over
