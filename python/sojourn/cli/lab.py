"""`sojourn lab`: a command at one end of an emulated path, another at the far end, or a shell at both.

The options are parsed here, and COMMAND is waited for; the path is made in labs. Signals are for COMMAND: those that
end a program are passed on to it, and its exit status is that of `sojourn`.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.binary import find_instrument
from sojourn.cli.lab_programs import as_caller, shell, start
from sojourn.cli.lab_shells import shells, the_other
from sojourn.cli.lab_show import in_force, passed, shown
from sojourn.errors import MachineError, RequestError
from sojourn.instruments.emulator import Settings, explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.labs.end import End
    from sojourn.labs.lab import Lab

FLAGS = frozenset({"--spin", "--show"})
OWN = frozenset({"--peer", "--mtu", "--seed", "--log", "--congestion"})
NOT_HERE = frozenset({
    "--json", "--control", "--name", "--part", "--die-with-parent", "--ready-fd", "--for", "--backend", "--take-over",
    "--redirect", "--sleep", "--fifo", "--no-fifo", "--cpu", "--engine", "--budget", "--memory", "--log-limit",
    "--compensate", "--idle",
})  # fmt: skip
"""Options of `sojourn emulate run` that do not concern the treatment of packets."""

PEER_SECONDS = 2.0
"""The time for which COMMAND waits until the peer's command listens."""

GIVEN_BY_THE_KERNEL = 0x80
"""SI_KERNEL: a signal from the terminal, which COMMAND has received as well."""

HANDED_ON = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


@dataclass
class Asked:
    """The options of the command line."""

    command: list[str]
    peer: str | None = None
    mtu: int = 1500
    pipe: list[str] = field(default_factory=list)
    """Options of `sojourn emulate`."""
    own: dict[str, str] = field(default_factory=dict)


def lab(words: list[str]) -> int:
    """Make the laboratory and run the commands in it; return COMMAND's exit status."""
    asked = read(words)
    explained: dict[str, Any] = explain(find_instrument(), asked.pipe, as_caller)
    settings = settings_of(asked, explained)
    if "--show" in asked.own:
        told = shown(explained, mtu=asked.mtu, seed=settings.seed, command=asked.command, peer=asked.peer)
        by = f"\nTCP by {asked.own['--congestion']}, where the kernel has it" if "--congestion" in asked.own else ""
        print(f"{told}{by}")
        return 0
    require_program(asked.command or shell())
    if settings.log is not None:
        require_folder(str(settings.log))
    if not asked.command and not sys.stdin.isatty():
        raise RequestError("a shell needs a terminal: give a command after --, `sojourn lab --delay 20ms -- CMD`")
    from sojourn.labs.lab import laid

    with laid(settings, asked.mtu, asked.own.get("--congestion")) as made:
        if asked.peer is not None:
            start_peer(made.far, asked.peer)
        print(f"sojourn: {in_force(explained, settings.seed)}; TCP by {made.far.congestion}", file=sys.stderr)
        if asked.command:
            print(f"sojourn: {the_other(made.far)}", file=sys.stderr)
        status = attend(start(made.near, asked.command) if asked.command else shells(made))
        made.require_path()
        tell(made)
    return status


def read(words: list[str]) -> Asked:
    """Parse the words before `--` as options, those after it as COMMAND."""
    at = words.index("--") if "--" in words else len(words)
    asked, left = Asked(words[at + 1 :]), iter(words[:at])
    for word in left:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            raise RequestError(f"'{word}': COMMAND begins after --, as in `sojourn lab --delay 20ms -- {word}`")
        if name in NOT_HERE:
            raise RequestError(f"{name} is not for a laboratory: `sojourn emulate` has it, between ports of your own")
        if name in FLAGS:
            asked.own[name] = "yes"
            continue
        if not word.startswith(("--", "-C")):
            raise RequestError(f"{word}: no such option; `sojourn lab --help` has them all")
        if not word.startswith("--"):  # -C FILE, or -CFILE
            asked.pipe.append(word if len(word) > 2 else "".join([word, *islice(left, 1)]))
            continue
        values = [value] if equals else list(islice(left, 1))
        if not values:
            raise RequestError(f"{name}: its value is missing")
        if name in OWN:
            asked.own[name] = values[0]
        else:
            asked.pipe.append(f"{name}={values[0]}")
    asked.peer = asked.own.get("--peer")
    asked.mtu = number("--mtu", asked.own.get("--mtu", "1500"))
    return asked


def number(option: str, value: str) -> int:
    """Return the value of an option that is a whole number."""
    if not value.isdecimal():
        raise RequestError(f"{option} {value}: expected a whole number")
    return int(value)


def settings_of(asked: Asked, explained: dict[str, Any]) -> Settings:
    """Return the emulator's configuration, from the instrument's explanation of the words."""
    words = {pipe["name"]: str(pipe["words"]) for pipe in explained["pipes"]}
    config = _config(asked.pipe)
    log = asked.own.get("--log")
    return Settings(
        "emulate",
        None if config else words.get("forward", ""),
        None if config else words.get("backward", ""),
        config=config,
        seed=number("--seed", asked.own.get("--seed", "1")),
        log=None if log is None else Path(log),
        spin="--spin" in asked.own,
    )


def require_folder(log: str) -> None:
    """Make the folder of a log as the calling user, who may have only this command's rights of root."""
    done = subprocess.run(
        as_caller(["sh", "-c", 'mkdir -p -m 700 -- "$0" && test -w "$0"', log]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().rpartition("mkdir: ")[2] or "you may not write there"
        raise RequestError(f"--log {log}: {said}")


def _config(options: list[str]) -> str | None:
    for one in options:
        for name in ("--config=", "-C"):
            if one.startswith(name):
                return one.removeprefix(name)
    return None


def require_program(command: Sequence[str]) -> None:
    """Raise RequestError before anything is built if the command does not exist or is not executable."""
    if command and shutil.which(command[0]) is None:
        raise RequestError(f"{command[0]}: no such command")


def start_peer(far: End, command: str) -> None:
    """Start the far end's command, and wait until it listens, has ended, or PEER_SECONDS have passed."""
    error = sys.stderr.fileno()
    options = {"stdin": subprocess.DEVNULL, "stdout": error, "stderr": error, "start_new_session": True}
    process = start(far, ["sh", "-c", command], **options)
    try:
        far.wait_for_port(seconds=PEER_SECONDS, unless=lambda: process.poll() is not None)
    except MachineError:
        print(f"sojourn: the other end's command does not listen after {PEER_SECONDS:g} s: continuing", file=sys.stderr)
    if process.poll():
        raise RequestError(f"--peer '{command}' ended at once with status {process.returncode}")


def attend(process: subprocess.Popen[Any]) -> int:
    """Wait for a command, and pass on signals that would end us; return its exit status, or 128 + a signal's number.

    A terminal's Ctrl-C has reached it already.
    """
    watched = {*HANDED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        while process.poll() is None:
            told = signal.sigtimedwait(watched, 1.0)
            if told is not None and told.si_signo in HANDED_ON and told.si_code != GIVEN_BY_THE_KERNEL:
                process.send_signal(told.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 128 - process.returncode if process.returncode < 0 else int(process.returncode)


def tell(made: Lab) -> None:
    """Report what the path did: losses and lateness of each direction, and warnings of the emulator."""
    report = made.show().get("report", {})
    for sentence in [*passed(report), *report.get("said", [])]:
        print(f"sojourn: {sentence}", file=sys.stderr)
