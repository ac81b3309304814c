"""Method "emulator": the plan of streams through a pipe, to compare it with its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.devices import emulator_label
from sojourn.plan.emulatable import AN_EMULATOR
from sojourn.plan.matrix import ask_streams
from sojourn.plan.section import HOUR_NS, key, section
from sojourn.plan.source import refuse
from sojourn.plan.values import duration, number

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan

A_LIMIT = duration(1, HOUR_NS)


@section
class LimitsPlan:
    """The limits of a pipe's checks; None leaves a limit to the analysis."""

    offset_ns: int | None = key(A_LIMIT, None, "largest allowed error of the mean delay of a pipe")
    p50_ns: int | None = key(
        A_LIMIT, None, ("half of the packets must leave within this time of their intended departure")
    )
    p99_ns: int | None = key(A_LIMIT, None, "99 of 100 packets must")
    p999_ns: int | None = key(A_LIMIT, None, "999 of 1,000 packets must")
    rate: float | None = key(number(0, 1), None, "largest allowed error of the rate of a pipe's link, as a share")
    cdf: float | None = key(
        number(0, 1), None, ("largest allowed distance between the distribution of the delays and the configured one")
    )


def check(plan: Plan, given: Lookup) -> None:
    """Refuse a plan without an emulator."""
    devices = plan.bed.devices
    if all(emulator_label(device) is None for device in devices):
        raise refuse(given("bed.devices", list(devices)), "bed.devices", f"{AN_EMULATOR} for method emulator")


ASK = ask_streams(
    overload=True,
    hypotheses=("no-tick", "no-shortfall", "delay-independent-of-rate", "loss-as-configured"),
    sessions=True,
    more={"limits": LimitsPlan},
    not_simulated="a simulated line has no emulator",
    logs_emulators=True,
    joins_clocks=True,
    check=check,
)
