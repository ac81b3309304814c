"""Checks that the paths of real hosts have the ports that a plan needs: several at an end, and bypasses for load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.devices import BYPASS, DIRECT
from sojourn.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sojourn.plan.ask import Lookup
    from sojourn.plan.real_bed import RealPath
    from sojourn.plan.types import Plan


def check_real_ports(plan: Plan, given: Lookup, paths: Mapping[str, RealPath]) -> None:
    """Refuse a plan that needs more ports than a path has; the error names the fix."""
    where, bed = given("bed.hosts", plan.bed.hosts).where, plan.bed
    if lacking := _wrong_direct(DIRECT in bed.links, paths[DIRECT]):
        raise RequestError(f"{where}: {lacking}")
    for device in bed.devices:
        if devices.is_switch(device) and (lacking := too_few(device, paths[device], bed.near, bed.far)):
            raise RequestError(f"{where}: {lacking}: name more in the file of hosts{_or_ask_less(plan, paths[device])}")
    if not bed.bypass:
        return
    for path in (DIRECT, *bed.devices):
        if f"{path}{BYPASS}" not in paths:
            wanted = f'name [paths."{path}{BYPASS}"] in the file of hosts, or --set stream.load_via=through'
            raise RequestError(
                f"{where}: the study loads a second link beside each path, and {path} has none: {wanted}"
            )


def _wrong_direct(is_rated: bool, own: RealPath) -> str | None:
    """Return what is wrong with the way of the direct path: over the devices' host where it is rated, else one cable.

    The emulator that gives it a rate is there.
    """
    if is_rated and not own.left:
        return (
            "the study gives the direct link a rate or delay, which an emulator on the host of devices has, and path "
            "direct has no port there: name left and right in the file of hosts, with a cable from each to A and to B"
        )
    if own.left and not is_rated:
        return (
            "path direct goes through the host of devices (left and right), which joins these ports only for studies "
            "that give the direct link a rate or delay: name a file whose path direct is one cable, or "
            '--set bed.links.direct.rate="100Mbit/s"'
        )
    return None


def too_few(path: str, own: RealPath, near: int, far: int) -> str | None:
    """Return which end of a path has too few ports, or None."""
    for end, side, there, asked in (("A", "near", own.a, near), ("B", "far", own.b, far)):
        if len(there) < asked:
            return f"the study asks {asked} ports at {end} ({side}), and path {path} has {len(there)}"
    return None


def _or_ask_less(plan: Plan, own: RealPath) -> str:
    """Return the option whose values the ports suffice for, as the end of the error."""
    stream, least = plan.sections.get("stream"), plan.ask.ends(plan.sections)
    if least.near <= len(own.a) and least.far <= len(own.b):  # the study's own, and no stream's, are too many
        key, most = ("near", len(own.a)) if plan.bed.near > len(own.a) else ("far", len(own.b))
        return f", or --set bed.{key}={most}"
    if stream is None:
        return ""
    key, there, asked = ("receivers", len(own.b), least.far) if least.near <= len(own.a) else (
        "senders", len(own.a), least.near)  # fmt: skip
    values = getattr(stream, key)
    loads = asked - max(values) - (key == "receivers")
    fewer = [str(value) for value in values if value + (key == "receivers") + loads <= there]
    if fewer:
        return f", or --set stream.{key}={','.join(fewer)}"
    return ", or --set stream.load_via=beside" if loads and plan.bed.bypass else ""
