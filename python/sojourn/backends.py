"""Where a bed can stand: the backends by their names, each one file and its entry here.

An entry is a class of the shape of `sojourn.bed.backend.Backend`, which is given the run's id. Another distribution
adds one by an entry point of the group `sojourn.backends`. A backend is imported when a plan names it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

OWN = {
    "netns": "sojourn.bed.backends.netns:NetnsBackend",
    "ssh": "sojourn.bed.backends.ssh:SshBackend",
    "sim": "sojourn.bed.backends.simulated:SimulatedBackend",
}
GROUP = "sojourn.backends"


@cache
def backends() -> dict[str, str]:
    """Module and class of each, by its name."""
    return OWN | {one.name: one.value for one in entry_points(group=GROUP) if one.name not in OWN}


@cache
def is_simulated(name: str) -> bool:
    """Whether a bed on it has no frames, and time is the instrument's own."""
    return bool(load(name).simulated)


def load(name: str) -> Any:
    """The class of a backend."""
    module, _, attribute = backends()[name].partition(":")
    return getattr(import_module(module), attribute)
