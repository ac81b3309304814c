"""Become the Rust instrument, for the commands that it implements."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing `typing` takes longer than everything else here
if TYPE_CHECKING:
    from typing import NoReturn


def become_instrument(argv: list[str]) -> NoReturn:
    """Replace this process by the instrument, with the same terminal and its own exit status; its help has our name."""
    from sojourn.binary import find_instrument

    # A file of a package is named NAME/FILE, on the command line or in a file of pipes.
    if argv[:1] == ["emulate"] and any("/" in word or "toml" in word for word in argv):
        from sojourn.profiles import offer

        offer()
    os.execv(find_instrument(), ["sojourn", *argv])
