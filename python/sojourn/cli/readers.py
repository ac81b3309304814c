"""The readers of our output, who may close it before its end, as `head` does: no error, and no other exit status."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False  # importing `typing` takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def whoever_reads() -> Iterator[None]:
    """Print, and continue if the reader closes the pipe: the exit status must be the answer's."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence()
    except SystemExit as end:
        if not has_closed(end):
            raise
        silence()


def finish_output() -> None:
    """Write what is still to be printed; if the reader has closed the output, the exit status is unaffected."""
    with whoever_reads():
        pass


def has_closed(end: SystemExit) -> bool:
    """Return whether a library ended the program because the reader has closed the output: rich and typer do."""
    return isinstance(end.__context__, BrokenPipeError)


def silence() -> None:
    """Drop what is still to be printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
