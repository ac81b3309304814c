"""Checks that the paths of real hosts have the ports that a plan needs: several at an end, and bypasses for load."""

from __future__ import annotations

from dataclasses import replace
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
    if lacking := _wrong_direct(DIRECT in bed.links, paths[DIRECT], has_clock_trials=plan.ask.clock_trials):
        raise RequestError(f"{where}: {lacking}")
    for device in _switches(plan):
        if lacking := too_few(device, paths[device], bed.near, bed.far):
            raise RequestError(f"{where}: {lacking}: name more in the file of hosts{_or_ask_less(plan, paths, device)}")
    if bed.bypass and (path := _without_bypass(plan, paths)) is not None:
        wanted = f'name [paths."{path}{BYPASS}"] in the file of hosts'
        if _switches(plan) and _suffice(plan, paths, load_via=("through",)):
            wanted += ", or --set stream.load_via=through"
        raise RequestError(f"{where}: the study loads a second link beside each path, and {path} has none: {wanted}")


def _wrong_direct(is_rated: bool, own: RealPath, *, has_clock_trials: bool) -> str | None:
    """Return what is wrong with the way of the direct path: over the devices' host where it is rated, else one cable.

    The emulator that gives it a rate is there; clock trials pass no such link.
    """
    if is_rated and not own.left:
        return (
            "the study gives the direct link a rate or delay, which an emulator on the host of devices has, and path "
            "direct has no port there: name left and right in the file of hosts, with a cable from each to A and to B"
        )
    if own.left and not is_rated:
        return (
            "path direct goes through the host of devices (left and right), which joins these ports only for studies "
            "that give the direct link a rate or delay: name a file whose path direct is one cable"
            + ("" if has_clock_trials else ', or --set bed.links.direct.rate="100Mbit/s"')
        )
    return None


def _switches(plan: Plan) -> list[str]:
    """Return the devices that need the ports which a plan asks.

    If none has more than two ports, and streams need more, these are those that Sojourn does not build: any of them may
    be a switch.
    """
    found = [device for device in plan.bed.devices if plan.bed.is_switch(device)]
    least = plan.ask.ends(plan.sections)
    if found or max(least.near, least.far) == 1:
        return found
    return [device for device in plan.bed.devices if (known := devices.known(device)) and known.mode.is_outside]


def too_few(path: str, own: RealPath, near: int, far: int) -> str | None:
    """Return which end of a path has too few ports, or None."""
    for end, side, there, asked in (("A", "near", own.a, near), ("B", "far", own.b, far)):
        if len(there) < asked:
            return f"the study needs {asked} ports at {end} ({side}), and path {path} has {len(there)}"
    return None


def _or_ask_less(plan: Plan, paths: Mapping[str, RealPath], device: str) -> str:
    """Return the option whose values the ports suffice for, as the end of the error."""
    stream, least, own = plan.sections.get("stream"), plan.ask.ends(plan.sections), paths[device]
    if least.near <= len(own.a) and least.far <= len(own.b):  # the study's own, and no stream's, are too many
        key, most = ("near", len(own.a)) if plan.bed.near > len(own.a) else ("far", len(own.b))
        return f", or --set bed.{key}={most}"
    if stream is None:
        return ""
    key = "receivers" if least.near <= len(own.a) else "senders"
    fewer = tuple(value for value in getattr(stream, key) if _suffice(plan, paths, **{key: (value,)}))
    if fewer and fewer != getattr(stream, key):
        return f", or --set stream.{key}={','.join(map(str, fewer))}"
    return ", or --set stream.load_via=beside" if _suffice(plan, paths, load_via=("beside",)) else ""


def _suffice(plan: Plan, paths: Mapping[str, RealPath], **stream: object) -> bool:
    """Return whether these paths have the ports and bypasses for the study with other keys of its streams."""
    if "stream" not in plan.sections:
        return False
    asked = plan.ask.ends({**plan.sections, "stream": replace(plan.sections["stream"], **stream)})
    if any(too_few(device, paths[device], asked.near, asked.far) for device in _switches(plan)):
        return False
    return not asked.bypass or _without_bypass(plan, paths) is None


def _without_bypass(plan: Plan, paths: Mapping[str, RealPath]) -> str | None:
    """Return the first path of a plan that has no second link for load, or None."""
    return next((path for path in (DIRECT, *plan.bed.devices) if f"{path}{BYPASS}" not in paths), None)
