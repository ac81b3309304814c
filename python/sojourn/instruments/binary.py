"""Finds the one binary, `sojourn-instrument`: an override, beside this Python's scripts, then the search path."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from sojourn.errors import MachineError

NAME = "sojourn-instrument"
OVERRIDE = "SOJOURN_INSTRUMENT"


def find_instrument() -> str:
    """The path of the binary."""
    if override := os.environ.get(OVERRIDE):
        if not os.access(override, os.X_OK):
            raise MachineError(f"{OVERRIDE}={override} is no program: unset it, or point it at {NAME}")
        return override
    beside = Path(sysconfig.get_path("scripts")) / NAME
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(NAME)
    if found is None:
        raise MachineError(f"{NAME} is not installed: run `make setup` in the source tree, or `pip install .`")
    return found
