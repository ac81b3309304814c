"""The program `sojourn`: one sentence for an error, and its exit status.

`sojourn probe …`, `stream …`, `clock …`, `capture …`, `match …`, `emulate …` and most of `tcplog …` become the
Rust instrument before anything else is loaded, the standard library's larger modules included.
The commands are in cli/commands.py, and each imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys

from sojourn.cli.become import become_instrument
from sojourn.cli.who_called import name_as_sudo_does
from sojourn.errors import DENIED, MachineError, RequestError, SojournError

TYPE_CHECKING = False  # importing `typing` takes longer than everything else before the instrument runs
if TYPE_CHECKING:
    from typing import Any, NoReturn

INTERRUPTED = 130

BY_HAND = frozenset({"probe", "stamp", "stream", "clock", "capture", "match", "emulate"})
"""The commands that the instrument implements."""

OF_TCPLOG = frozenset({"run", "receive", "status", "set", "watch", "serve", "recover"})
"""The commands of `tcplog` that the instrument implements; the others are ours."""

LOG = ["tcplog", "run"]
"""The only command of the instrument whose output is followed by a list of ours."""

OURS = "--plot"
"""The option of `clock` that the instrument does not have."""

VERIFY = ["emulate", "verify"]
"""The only command of the emulator that needs a bed and an analysis."""

TRANSLATE = ["emulate", "explain"]
"""A command of the instrument, except that `--from` is ours."""

HELP_OF_EMULATE = (["emulate"], ["emulate", "--help"], ["emulate", "-h"], ["emulate", "help"])
"""Commands with which the instrument lists its own; `verify` is missing there, because it is ours."""

COMPLETION = "_SOJOURN_COMPLETE"
"""The variable with which a shell requests completions, for any command."""


def program() -> NoReturn:
    """Run the program in a process of its own, which gives up the rights that root's command does not need."""
    main(gives_up=True)


def main(*, gives_up: bool = False) -> NoReturn:
    """Run a command and exit."""
    name_as_sudo_does()
    try:
        if sys.argv[1:] in HELP_OF_EMULATE:
            help_of_emulate(sys.argv[1:])
        if sys.argv[1:3] == LOG:
            from sojourn.cli.tcplog_run import run_log

            run_log(sys.argv[3:])
        if is_by_hand(sys.argv[1:]):
            become_instrument(sys.argv[1:])
        if gives_up:
            from sojourn.cli.kept import give_up

            give_up(sys.argv[1:])
        run_command()
    except SojournError as error:
        print(f"sojourn: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.status)
    except KeyboardInterrupt:
        print("sojourn: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        from sojourn.cli.readers import silence

        silence()
    except OSError as error:
        if error.errno not in DENIED:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"sojourn: {where}{error.strerror}: {DENIED[error.errno]}", file=sys.stderr)
        sys.exit(MachineError.status)
    sys.exit(0)


def is_by_hand(words: list[str]) -> bool:
    """Return whether the instrument implements the command."""
    if words[:1] == ["tcplog"]:
        return bool(OF_TCPLOG.intersection(words[1:2]))
    if words[:1] == ["match"]:
        from sojourn.cli.match import is_ours

        return not is_ours(words[1:])
    if words[:2] == TRANSLATE:
        return not any(word.split("=")[0] == "--from" for word in words)
    ours = any(word.startswith(OURS) for word in words[1:]) if words[:1] == ["clock"] else words[:2] == VERIFY
    return bool(BY_HAND.intersection(words[:1])) and not ours


def run_command() -> None:
    """Run a command; a command line that cannot be parsed is refused in a sentence, like any other wrong request."""
    import typer

    from sojourn.cli.commands import app
    from sojourn.cli.readers import finish_output, has_closed
    from sojourn.cli.shallow import for_word

    asked = app if COMPLETION in os.environ else for_word(app, next(iter(sys.argv[1:]), None))
    try:
        status = asked(standalone_mode=False)
    except SystemExit as end:
        if has_closed(end):
            raise BrokenPipeError from end
        finish_output()
        raise
    except typer.Abort as error:  # the form of Ctrl-C if no command has caught it
        raise KeyboardInterrupt from error
    except Exception as error:
        if not isinstance(error, typer.BadParameter.__mro__[1]):  # the parser's own class, which has no name here
            raise
        raise_as_sentence(error)
    finish_output()
    sys.exit(status if isinstance(status, int) else 0)


def raise_as_sentence(error: Any) -> NoReturn:
    """Raise a parser's error as a sentence; a command line without a command gets its help."""
    asked = error.ctx.command_path if error.ctx else "sojourn"
    words = str(error.format_message()).removeprefix("\b").strip()
    if "\n" in words:
        error.show()
        sys.exit(error.exit_code)
    raise RequestError(f"{words[:1].lower()}{words[1:].rstrip('.')}: see `{asked} --help`") from error


def help_of_emulate(argv: list[str]) -> NoReturn:
    """Print the instrument's help, with the command that it does not have."""
    import subprocess

    from sojourn.binary import find_instrument

    done = subprocess.run(["sojourn", *argv], executable=find_instrument(), check=False)
    more = "\n`sojourn emulate verify` proves on this machine how exactly a pipe is emulated: see its own --help."
    print(more, file=sys.stdout if done.returncode == 0 else sys.stderr)
    sys.exit(done.returncode)
