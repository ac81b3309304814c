"""The real hosts and paths of a plan, as a bed takes them; what may not be asked of hosts with clocks of their own."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sojourn.bed import HostSpec, PathSpec
from sojourn.devices import DIRECT
from sojourn.errors import MachineError
from sojourn.methods import load, packages
from sojourn.plan.clock_trials import needs_clock_trials
from sojourn.plan.real_bed import load_real_bed

if TYPE_CHECKING:
    from sojourn.bed.backend import Backend
    from sojourn.plan import Plan
    from sojourn.plan.ask import Ask
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
    """Refuse a study that would take the times of one host for those of another."""
    if not backend.one_clock and (why := refused_with_two_clocks(plan)):
        raise MachineError(why)


def refused_with_two_clocks(plan: Plan) -> str | None:
    """Why the plan is refused where its hosts are several machines; None where it is not. Reaches no host."""
    if may_have_several_clocks(plan.ask):
        return _clock_trials_delayed(plan)
    able = [name for name in sorted(packages()) if may_have_several_clocks(load(name, "ask").ASK)]
    return (
        f"{plan.study.name} compares times of hosts whose clocks differ, and method {plan.study.method} does not bring "
        f"these together: measure it on one machine (--bed netns), or ask a study of method {', '.join(able[:-1])} or "
        f"{able[-1]}"
    )


def _clock_trials_delayed(plan: Plan) -> str | None:
    """What is wrong where clock trials would pass an emulator: what it is configured to would be the clocks' error."""
    if DIRECT not in plan.bed.links or not needs_clock_trials(plan):
        return None
    return (
        f"{plan.study.name} compares the hosts' clocks over the direct link, which has a rate or delay (bed.links): "
        "measure it on one machine (--bed netns), or leave the direct link without"
    )


def may_have_several_clocks(ask: Ask) -> bool:
    """Whether a method compares no times of several hosts, or brings their clocks together: by exchanges of its own
    streams, or of others between its trials."""
    return not ask.one_clock or ask.joins_clocks or ask.clock_trials
