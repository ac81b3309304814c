"""The available backends of a bed by name, each with its module and an entry here.

An entry is a class with the interface of `sojourn.bed.backend.Backend`, whose argument is the run's id. Another
distribution adds one by an entry point of the group `sojourn.backends`. A backend is imported when a plan names it.
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
    """Return module and class of each backend, by its name."""
    return OWN | {one.name: one.value for one in entry_points(group=GROUP) if one.name not in OWN}


@cache
def is_simulated(name: str) -> bool:
    """Return whether a bed on it has no frames, and runs in the instrument's simulated time."""
    return bool(load(name).simulated)


def load(name: str) -> Any:
    """Return the class of a backend."""
    module, _, attribute = backends()[name].partition(":")
    return getattr(import_module(module), attribute)
