"""Files for pipes from other distributions: profiles of media, distributions of delay, traces, patterns of loss.

A distribution names its folder of them by an entry point of the group `sojourn.profiles`: the name is the part before
the slash where a pipe names a file (`profile wlan/11g.profile`), the value is the package with the folder. That package
itself is not imported, only its parent (`their` for `their.media`). The instrument finds the files by an environment
variable; a file relative to the working folder has precedence.
"""

from __future__ import annotations

import os
from functools import cache

VARIABLE = "SOJOURN_PROFILES"
GROUP = "sojourn.profiles"


@cache
def offer() -> None:
    """Set the variable with these folders for all programs that this process starts or becomes, if there are any."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    found: dict[str, str] = {}
    for one in entry_points(group=GROUP):
        try:
            spec = find_spec(one.value)
        except Exception:  # whatever the parent package raises: a pipe that names a file of it is then refused
            continue
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if os.pathsep not in folder:
                found.setdefault(one.name, folder)
    if found and VARIABLE not in os.environ:
        os.environ[VARIABLE] = os.pathsep.join(f"{name}={folder}" for name, folder in sorted(found.items()))
