"""Every line that a program of ours answers while a test runs, held against its protocol's published schema afterwards.

Only lines of instruments that a study asks within the tests' own process, by `sojourn.instruments.conversation`. They
are looked at when the test is over: nothing is done beside a measurement but keeping them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sojourn.instruments.conversation import Conversation
from tests.unit.printed_json import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROTOCOLS = frozenset({
    "probe-blocks", "probe-respond", "stamp-reflect", "stream-serve", "capture-serve", "tcplog-serve", "emulate-run",
})  # fmt: skip
"""Others that are asked so, those that send and receive over TCP, are no commands of `sojourn`."""

MOST = 500
"""So many lines of a test are looked at, spread evenly."""

Kept = list[tuple[str, bytes]]


def protocol_of(argv: list[str]) -> str | None:
    """What the instrument is asked to do by this command line; None of another program, such as a test's double."""
    words = zip(argv, argv[1:], argv[2:], strict=False)
    asked = (f"{one}-{two}" for program, one, two in words if program.endswith("/sojourn-instrument"))
    return next((name for name in asked if name in PROTOCOLS), None)


@pytest.fixture(scope="session")
def kept_lines() -> Iterator[Kept]:
    """What was answered since the last test, each line with its protocol's name."""
    kept: Kept = []
    begin: Callable[..., None] = Conversation.__init__
    line: Callable[..., bytes] = Conversation._line

    def beginning(self: Any, start: Any, argv: list[str], *more: Any) -> None:
        self.protocol = protocol_of(argv)
        begin(self, start, argv, *more)

    def keeping(self: Any, *how: Any) -> bytes:
        answered = line(self, *how)
        if self.protocol is not None:
            kept.append((self.protocol, answered))
        return answered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Conversation, "__init__", beginning)
        patch.setattr(Conversation, "_line", keeping)
        yield kept


@pytest.fixture(autouse=True)
def answers_as_published(kept_lines: Kept) -> Iterator[None]:
    """Fail a test in which a program answered what its schema does not know."""
    yield
    several, kept_lines[:] = list(kept_lines), []
    for name, line in several[:: 1 + len(several) // MOST]:
        held(name, json.loads(line))
