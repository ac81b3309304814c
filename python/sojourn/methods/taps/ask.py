"""Method "taps": the plan of streams with taps at both ports of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.plan.matrix import ask_streams
from sojourn.plan.rates import bit_rate
from sojourn.plan.section import key, section
from sojourn.plan.source import Given, refuse

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan


@section
class TapsPlan:
    """The processing of the delays between the taps."""

    subtract_serialisation: int | None = key(
        bit_rate(),
        None,
        "rate of a link: the time of each frame on it (with FCS, preamble and start delimiter) is subtracted from its "
        "delay",
    )


def check_tappable(plan: Plan, given: Lookup) -> None:
    """Refuse devices with XDP: it takes frames before the taps at their ports."""
    for device in plan.bed.devices:
        known = devices.known(device)
        if known is not None and (known.mode.polls or known.mode.is_emulator):
            wanted = "devices without XDP, which moves frames past the taps at its ports: bridge-latency measures it"
            raise refuse(Given(device, given("bed.devices", device).where), "bed.devices", wanted)


ASK = ask_streams(
    tcp=True,
    sessions=True,
    is_compared=True,
    not_simulated="taps see real frames: leave out --bed sim",
    check=check_tappable,
    joins_clocks=True,
    more={"taps": TapsPlan},
)
