"""The fixture `sojourn_path`: two network namespaces joined by an emulated path, for tests of anybody's software.

pytest loads this in every session of a Python that has Sojourn: it imports nothing else of Sojourn's until it is used.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Unpack

    from sojourn.labs.lab import Lab
    from sojourn.labs.pipe import Pipe


class MakePath(Protocol):
    """What the fixture is; the keywords are those of `sojourn.lab`."""

    def __call__(  # noqa: PLR0913 - all that an emulator can be configured with
        self,
        *,
        forward: str | None = None,
        backward: str | None = None,
        config: Path | str | None = None,
        seed: int = 1,
        mtu: int = 1500,
        congestion: str | None = None,
        log: Path | None = None,
        spin: bool = False,
        **pipe: Unpack[Pipe],
    ) -> Lab:
        """Make a path that stays until the test is over."""


@pytest.fixture
def sojourn_path() -> Iterator[MakePath]:
    """Two network namespaces joined by an emulated path: `path = sojourn_path(delay="20ms", loss=0.01)`.

    `path.near` and `path.far` run programs; all of it goes with the test. The test is skipped where this machine or its
    user cannot have namespaces, and fails there when the variable CI is set. A path that ended before the test is an
    error of the test.
    """
    made: list[Lab] = []
    with ExitStack() as stack:

        def make(**asked: Any) -> Lab:
            from sojourn.errors import MachineError
            from sojourn.labs.lab import lab

            try:
                made.append(stack.enter_context(lab(**asked)))
            except MachineError as why:
                reason = f"no emulated path on this machine: {why}"
                if os.environ.get("CI"):
                    pytest.fail(reason, pytrace=False)
                pytest.skip(reason)
            return made[-1]

        yield make
        for one in made:
            one.require_path()
