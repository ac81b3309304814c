"""Becomes the Rust instrument: for the commands that it does itself."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` takes longer than all else that is done here
if TYPE_CHECKING:
    from typing import NoReturn


def become_instrument(argv: list[str]) -> NoReturn:
    """Hand the command on: same process, same terminal, its own exit status; its help has the name given here."""
    from sojourn.binary import find_instrument

    # A file of a package is named NAME/FILE, on the command line or in a file of pipes.
    if argv[:1] == ["emulate"] and any("/" in word or "toml" in word for word in argv):
        from sojourn.profiles import offer

        offer()
    os.execv(find_instrument(), ["sojourn", *argv])
