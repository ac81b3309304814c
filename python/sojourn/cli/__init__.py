"""The program `sojourn`: one sentence for an error, and its exit status.

`sojourn probe …` becomes the Rust instrument before anything heavy is loaded. The commands are in cli/commands.py, and
each imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from sojourn.errors import SojournError

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the program and exit."""
    try:
        if sys.argv[1:2] == ["probe"]:
            become_instrument(sys.argv[1:])
        from sojourn.cli.commands import app

        app()
    except SojournError as error:
        print(f"sojourn: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.status)
    except KeyboardInterrupt:
        print("sojourn: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def become_instrument(argv: list[str]) -> NoReturn:
    """Hand the command on: same process, same terminal, its own exit status."""
    from sojourn.instruments.binary import NAME, find_instrument

    os.execv(find_instrument(), [NAME, *argv])
