"""The real hosts and paths of a plan, as a bed takes them; what may not be asked of hosts with clocks of their own."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sojourn.bed import HostSpec, PathSpec
from sojourn.errors import MachineError
from sojourn.plan.real_bed import load_real_bed

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.plan import Plan
    from sojourn.plan.real_bed import RealBed


def real_hosts(plan: Plan) -> dict[str, HostSpec]:
    """The hosts that the plan's file names; none where it has no such file."""
    return {} if plan.bed.hosts is None else hosts_of(load_real_bed(plan.bed.hosts))


def real_paths(plan: Plan) -> dict[str, PathSpec]:
    """The interfaces of each path that the plan's file names."""
    return {} if plan.bed.hosts is None else paths_of(load_real_bed(plan.bed.hosts))


def hosts_of(real: RealBed) -> dict[str, HostSpec]:
    """The hosts of a file, as a bed takes them."""
    return {name: HostSpec(**asdict(host)) for name, host in real.hosts.items()}


def paths_of(real: RealBed) -> dict[str, PathSpec]:
    """The paths of a file, as a bed takes them."""
    return {name: PathSpec(**asdict(path)) for name, path in real.paths.items()}


def require_clock(plan: Plan, backend: Backend) -> None:
    """Refuse a study of one-way delays between hosts whose clocks differ: it would take one for the other."""
    if plan.ask.one_clock and not backend.one_clock:
        raise MachineError(
            f"{plan.study.name} compares times of several hosts, which have clocks of their own: of real hosts, "
            "only studies of round-trip times can be asked so far (methods pairs and variance)"
        )
