"""A bench for the devices of a study: a direct cable, and for each device a cable from A and one to B.

A device of many ports has as many cables as the study asks; where it loads a second link beside each, there is one.
A device that Sojourn does not build (`dut:box`) has them, too: they end at the host `device`, which the file does not
name, and what joins them there is for the test to build.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

from sojourn import devices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.types import BedPlan

Cable = tuple[str, str, str, str]
"""Host and port, host and port."""


def cabled(
    names: Sequence[str], near: int = 1, far: int = 1, *, bypass: bool = False, is_direct_rated: bool = False
) -> tuple[list[Cable], str]:
    """The cables, and the paths as a file of real hosts has them; a direct link with a rate is through the device."""
    cables: list[Cable] = []
    free = {host: count(1) for host in ("a", "b", "device")}
    words = ""

    def port(host: str) -> str:
        return f"eth{next(free[host])}"

    def section(path: str, **ports: list[str]) -> str:
        told = (f"{end} = {json.dumps(own if len(own) > 1 else own[0])}\n" for end, own in ports.items())
        return f"[paths.{json.dumps(path)}]\n{''.join(told)}"

    for path in ("direct", *(["direct/bypass"] * bypass)):
        if is_direct_rated:
            at_a, at_left, at_right, at_b = port("a"), port("device"), port("device"), port("b")
            cables += [("a", at_a, "device", at_left), ("device", at_right, "b", at_b)]
            words += section(path, a=[at_a], left=[at_left], right=[at_right], b=[at_b])
            continue
        cables.append(("a", port("a"), "b", port("b")))
        words += section(path, a=[cables[-1][1]], b=[cables[-1][3]])
    for name in names:
        is_outside = name.startswith("dut:")
        several = (near, far) if is_outside or devices.is_switch(name) else (1, 1)
        for path, ends in ((name, several), *([(f"{name}/bypass", (1, 1))] * bypass)):
            a, left = ([port(host) for _ in range(ends[0])] for host in ("a", "device"))
            right, b = ([port(host) for _ in range(ends[1])] for host in ("device", "b"))
            cables += [("a", one, "device", other) for one, other in zip(a, left, strict=True)]
            cables += [("device", one, "b", other) for one, other in zip(right, b, strict=True)]
            words += section(path, a=a, b=b) if is_outside else section(path, a=a, left=left, right=right, b=b)
    return cables, words


def cabled_for(bed: BedPlan) -> tuple[list[Cable], str]:
    """The bench that a plan's bed asks."""
    return cabled(bed.devices, bed.near, bed.far, bypass=bed.bypass, is_direct_rated="direct" in bed.links)


def cabled_to_dut(bed: BedPlan) -> tuple[list[Cable], str]:
    """The same with one device that Sojourn does not build in the place of all that a plan's bed names."""
    return cabled(["dut:box"], bed.near, bed.far, bypass=bed.bypass)


def ports_at(cables: Sequence[Cable], host: str) -> list[str]:
    """The ports of a host at which cables end."""
    return [port for a, a_port, b, b_port in cables for there, port in ((a, a_port), (b, b_port)) if there == host]
