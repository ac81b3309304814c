"""The program `sojourn`: one sentence for an error, and its exit status.

`sojourn probe …`, `sojourn stream …` and `sojourn clock …` become the Rust instrument before anything heavy is loaded.
The commands are in cli/commands.py, and each imports what it needs when it is called.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, NoReturn

from sojourn.errors import MachineError, RequestError, SojournError

INTERRUPTED = 130

BY_HAND = frozenset({"probe", "stream", "clock"})
"""The commands that the instrument does itself."""

OURS = "--plot"
"""The option of `clock` that the instrument does not know."""

DENIED = {
    errno.EACCES: "ask its owner, or choose another place",
    errno.EPERM: "ask its owner, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "make room, then again",
    errno.EDQUOT: "make room, then again",
}
"""What a person can mend when a file cannot be read or written; anything else would be a fault of ours."""


def main() -> NoReturn:
    """Run the program and exit."""
    try:
        if BY_HAND.intersection(sys.argv[1:2]) and not any(word.startswith(OURS) for word in sys.argv[2:]):
            become_instrument(sys.argv[1:])
        run_command()
    except SojournError as error:
        print(f"sojourn: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.status)
    except KeyboardInterrupt:
        print("sojourn: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in DENIED:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"sojourn: {where}{error.strerror}: {DENIED[error.errno]}", file=sys.stderr)
        sys.exit(MachineError.status)
    sys.exit(0)


def run_command() -> None:
    """Run a command; one that cannot be understood is told in a sentence, as any other wrong request."""
    import typer

    from sojourn.cli.commands import app

    try:
        status = app(standalone_mode=False)
    except typer.Abort as error:  # what Ctrl-C becomes where no command took it
        raise KeyboardInterrupt from error
    except Exception as error:
        if not isinstance(error, typer.BadParameter.__mro__[1]):  # the parser's own, which has no name of its own here
            raise
        raise_as_sentence(error)
    sys.exit(status if isinstance(status, int) else 0)


def raise_as_sentence(error: Any) -> NoReturn:
    """A command line that the parser refused; one without a command asked for help."""
    asked = error.ctx.command_path if error.ctx else "sojourn"
    words = str(error.format_message()).removeprefix("\b").strip()
    if "\n" in words:
        error.show()
        sys.exit(error.exit_code)
    raise RequestError(f"{words[:1].lower()}{words[1:].rstrip('.')}: see `{asked} --help`") from error


def become_instrument(argv: list[str]) -> NoReturn:
    """Hand the command on: same process, same terminal, its own exit status; its help has the name given here."""
    from sojourn.instruments.binary import find_instrument

    os.execv(find_instrument(), ["sojourn", *argv])
