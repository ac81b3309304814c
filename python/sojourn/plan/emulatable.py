"""Rules for plans with emulators among the devices, or with rated links.

As in plan/check.py, each refusal names the key that a person most likely wants to change. Configuration strings of
pipes are checked by the instrument when the run begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn import devices
from sojourn.plan.emulators import EVERY
from sojourn.plan.source import refuse

if TYPE_CHECKING:
    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan

AN_EMULATOR = 'a device "emulate" in bed.devices'


def check_emulators(plan: Plan, given: Lookup) -> None:
    """Refuse pipes without an emulator, and sections for labels that no device has."""
    labels = {label for device in plan.bed.devices if (label := devices.emulator_label(device)) is not None}
    if any(plan.ask.pipes(plan)) and not labels:
        key = plan.ask.pipe_key
        raise refuse(given(key, list(plan.ask.pipes(plan))), key, f"{AN_EMULATOR}: no other path has pipes")
    for label in plan.emulators:
        if label not in {*labels, EVERY}:
            key = f"emulate.{label}"
            raise refuse(given(key, label), key, f'the device "emulate:{label}" in bed.devices')
    check_pipes(plan, given)


def check_pipes(plan: Plan, given: Lookup) -> None:
    """Refuse a pipe that is set before each trial if a file describes the pipes: it would replace them."""
    if not any(plan.ask.pipes(plan)):
        return
    for device in plan.bed.devices:
        label = devices.emulator_label(device)
        if label is None:
            continue
        own = plan.emulators.get(label, plan.emulators[EVERY])
        if own.config is not None:
            key = f"emulate.{label}.config" if label in plan.emulators and label else "emulate.config"
            raise refuse(
                given(key, own.config), key, f"no file beside {plan.ask.pipe_key}, which says what the pipes are"
            )


def check_links(plan: Plan, given: Lookup) -> None:
    """Check rated links: a value for each cable, real cables, and queues that hold at least one frame."""
    if not plan.bed.links:
        return
    if plan.bed.simulated:
        value = given("bed.backend", plan.bed.backend)
        raise refuse(value, "bed.backend", '"netns" with rated links: a simulated line has a serialiser of its own')
    for device, link in plan.bed.links.items():
        cables = devices.cables(device)
        for name, values in (("rate", link.rates_bps), ("delay", link.delays_ns)):
            if len(values) not in (1, cables):
                key = f"bed.links.{device}.{name}"
                raise refuse(given(key, f"{len(values)} values"), key, f"one, or {cables} for the cables from A to B")
