"""Becomes the Rust instrument: for the commands that it does itself."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` takes longer than all else that is done here
if TYPE_CHECKING:
    from typing import NoReturn


def become_instrument(argv: list[str]) -> NoReturn:
    """Hand the command on: same process, same terminal, its own exit status; its help has the name given here."""
    from sojourn.binary import find_instrument

    if argv[:1] == ["emulate"]:
        from sojourn.profiles import offer

        offer()
    os.execv(find_instrument(), ["sojourn", *argv])
