"""What can go wrong, as a person reads it: one sentence that says what is wrong and what to do, and an exit status.

Everything in Sojourn may import this file; it imports nothing of ours. The command line prints `sojourn: <sentence>`
and exits with the error's status. An error that is not one of these is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False  # `typing` takes long, and every command loads this
if TYPE_CHECKING:
    from collections.abc import Iterable


class SojournError(Exception):
    """An error that a person can act on; its text is one sentence.

    The sentence may quote what somebody else wrote: control characters, which a terminal would obey, are spelled out.
    Of a sentence that is longer than anybody reads the middle is left out.
    """

    status: int = 1

    def __str__(self) -> str:
        said = "".join(spelled(one) for one in super().__str__())
        return said if len(said) <= MOST_SAID else f"{said[:MOST_BEGIN]} … {said[-MOST_END:]}"


MOST_SAID, MOST_BEGIN, MOST_END = 1800, 1200, 500
"""Characters of a sentence: its beginning says what is wrong, its end says what to do."""


def spelled(character: str) -> str:
    """Return the character; for an end of line a space, and for control characters Python's escape sequence."""
    if character in "\t\n\v\f\r":
        return " "
    import unicodedata

    hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return ascii(character)[1:-1] if hidden else character


class RequestError(SojournError):
    """The request is wrong: an unknown key, an impossible value, a file that is not there."""

    status = 2


class MachineError(SojournError):
    """This machine cannot do it; the sentence names the command that would fix that, where one exists."""

    status = 3


class DoubtfulError(SojournError):
    """It ran, but its result must not be trusted."""

    status = 4


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice that a misspelt word most likely means."""
    import difflib  # needed for refusals only

    return next(iter(difflib.get_close_matches(word, list(choices), 1, cutoff)), None)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return the end of a sentence that names the probable choice; empty if none is similar to the word."""
    meant = nearest(word, choices)
    return f" (did you mean {meant}?)" if meant else ""


DENIED = {
    errno.EACCES: "ask its owner, or choose another place",
    errno.EPERM: "ask its owner, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "make room, then again",
    errno.EDQUOT: "make room, then again",
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`), then again",
}
"""What a person can do if a file cannot be read or written; any other error is a fault of ours."""
