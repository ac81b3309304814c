"""The cores of the two ends. "auto" is resolved here, once, and logged. Does not pin devices (bed does)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sojourn.backends import load
from sojourn.conduct.real_hosts import real_hosts
from sojourn.errors import RequestError

if TYPE_CHECKING:
    from random import Random

    from sojourn.plan.types import HostPlan, Plan


class Cores(NamedTuple):
    """The cores of the two ends."""

    prober: int
    responder: int


def choose_cores(plan: Plan, draw: Random | None = None) -> Cores:
    """Return the configured cores, or two that avoid the first one, which serves most interrupts, if there are others.

    If there is a choice, `draw` makes it.
    """
    return cores_of(plan.host, load(plan.bed.backend).cores(real_hosts(plan)), draw)


def cores_of(host: HostPlan, usable: list[int], draw: Random | None = None) -> Cores:
    """Return the same for known cores."""
    spare = usable[1:] if len(usable) > 2 else usable
    if draw is not None:
        spare = draw.sample(spare, len(spare))
    left = [cpu for cpu in spare if cpu != host.responder_cpu] or spare
    prober = left[0] if host.prober_cpu is None else host.prober_cpu
    others = [cpu for cpu in spare if cpu != prober] or [prober]
    responder = others[0] if host.responder_cpu is None else host.responder_cpu
    for key, cpu in (("host.prober_cpu", prober), ("host.responder_cpu", responder)):
        if cpu not in usable:
            raise RequestError(f"{key} = {cpu}: expected one of the cores {', '.join(map(str, usable))}, or auto")
    return Cores(prober, responder)
