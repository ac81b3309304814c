"""Becomes the Rust instrument: for the commands that it does itself."""

from __future__ import annotations

import os
from typing import NoReturn


def become_instrument(argv: list[str]) -> NoReturn:
    """Hand the command on: same process, same terminal, its own exit status; its help has the name given here."""
    from sojourn.instruments import find_instrument

    os.execv(find_instrument(), ["sojourn", *argv])
