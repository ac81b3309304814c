"""The identity of a run's bed: its hosts, their test ports and the instrument. A run is not resumed on another bed.

Hosts are identified by a digest of their machine id, from which nobody can be identified. Other changes (a kernel, a
governor) are logged and compared, but do not end the run (conduct/facts.py).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.binary import find_instrument
from sojourn.conduct.real_hosts import real_paths
from sojourn.errors import RequestError
from sojourn.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.bed.backend import Backend
    from sojourn.plan import Plan

PORTS = {"a": "of host A", "b": "of host B", "left": "of the device, towards A", "right": "of the device, towards B"}


def bound_to(plan: Plan, backend: Backend) -> dict[str, Any]:
    """Return the identity of a run's first bed, which `bed.json` keeps."""
    instrument = Path(find_instrument()).read_bytes()
    return {
        "version": __version__,
        "instrument": hashlib.sha256(instrument).hexdigest()[:16],
        "hosts": {name: _digest(identifier) for name, identifier in backend.machine_ids().items() if identifier},
        "paths": {name: {end: list(getattr(path, end)) for end in PORTS} for name, path in real_paths(plan).items()},
    }


def require_same(began: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Refuse to resume a run on another bed; a run of an earlier version has no identity to compare."""
    differ = [*_other_hosts(began, now), *_other_ports(began, now), *_other_instrument(began, now)]
    if differ:
        raise RequestError(
            f"{folder} was begun on another bed ({'; '.join(differ)}): go on with it there, or begin a run anew"
        )


def _other_hosts(began: dict[str, Any], now: dict[str, Any]) -> list[str]:
    before, after = began.get("hosts", {}), now["hosts"]
    names = [name for name in after if name in before and before[name] != after[name]]
    return [f"host {name.upper() if len(name) == 1 else name} is another machine" for name in names]


def _other_ports(began: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what is another port. Paths and further ports that the file names in addition are of no other run."""
    before, after = began.get("paths", {}), now["paths"]
    found = [f"path {name} is gone" for name in before.keys() - after.keys()]
    for name in after.keys() & before.keys():
        for end, where in PORTS.items():
            was, now_is = _names(before[name].get(end)), _names(after[name].get(end))
            if any(one != other for one, other in zip(was, now_is, strict=False)) or bool(was) != bool(now_is):
                told, tells = (", ".join(several) or "none" for several in (was, now_is))
                found.append(f"the ports {where}, of path {name} were {told} and are {tells}")
    return sorted(found)


def _names(ports: str | Sequence[str] | None) -> Sequence[str]:
    """Return a path's ports at one end: a run of an earlier version has one name or none, JSON a list."""
    return [ports] if isinstance(ports, str) else ports or ()


def _other_instrument(began: dict[str, Any], now: dict[str, Any]) -> list[str]:
    if began.get("version", now["version"]) != now["version"]:
        return [f"Sojourn was {began['version']}, is {now['version']}"]
    is_other = began.get("instrument", now["instrument"]) != now["instrument"]
    return ["the instrument is not the one that it was"] if is_other else []


def _digest(identifier: str) -> str:
    """Return an application-specific hash, as machine-id(5) demands: it cannot identify the machine elsewhere."""
    return hashlib.sha256(f"sojourn bed {identifier}".encode()).hexdigest()[:16]
