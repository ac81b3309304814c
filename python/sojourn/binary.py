"""The path of the Rust program.

A leaf: `sojourn probe` and its like load this and little else before they become it.
"""

from __future__ import annotations

import os
import sys

from sojourn.errors import MachineError

INSTRUMENT = "sojourn-instrument"
OVERRIDE = "SOJOURN_INSTRUMENT"


def find_instrument() -> str:
    """Return the path of `sojourn-instrument`: from SOJOURN_INSTRUMENT, beside this Python, or on the search path."""
    if override := os.environ.get(OVERRIDE):
        if not os.access(override, os.X_OK):
            raise MachineError(f"{OVERRIDE}={override} is no program: unset it, or point it at {INSTRUMENT}")
        return override
    beside = f"{_scripts()}/{INSTRUMENT}"
    found = beside if os.access(beside, os.X_OK) else _on_search_path()
    if found is None:
        raise MachineError(f"{INSTRUMENT} is not installed: run `make setup` in the source tree, or `pip install .`")
    return found


def _scripts() -> str:
    """Return the folder of this Python's scripts; importing `sysconfig` takes longer than everything else here."""
    if sys.prefix != sys.base_prefix:  # a virtual environment
        return f"{sys.prefix}/bin"
    import sysconfig

    return sysconfig.get_path("scripts")


def _on_search_path() -> str | None:
    from shutil import which

    return which(INSTRUMENT, path=search_path())


def search_path() -> str:
    """Return the search path; an unprivileged user's often lacks the folders of iproute2 and ethtool."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
