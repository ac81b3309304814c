"""Files of pipes that other distributions bring: profiles of media, distributions of delay, traces, patterns of loss.

A distribution names its folder of them by an entry point of the group `sojourn.profiles`: the name is what stands
before the slash where a pipe names a file (`profile wlan/11g.profile`), the value the package whose folder they are in.
The package is not imported, only one in which it lies (`their` of `their.media`). The instrument finds the files by an
environment variable; a file from the folder on goes first.
"""

from __future__ import annotations

import os
from functools import cache

VARIABLE = "SOJOURN_PROFILES"
GROUP = "sojourn.profiles"


@cache
def offer() -> None:
    """Names the folders to all programs that this process starts or becomes; nothing where no package has any."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    found: dict[str, str] = {}
    for one in entry_points(group=GROUP):
        try:
            spec = find_spec(one.value)
        except Exception:  # whatever a package raises in which theirs lies: a pipe that names a file of it is refused
            continue
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if os.pathsep not in folder:
                found.setdefault(one.name, folder)
    if found and VARIABLE not in os.environ:
        os.environ[VARIABLE] = os.pathsep.join(f"{name}={folder}" for name, folder in sorted(found.items()))
