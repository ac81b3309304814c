"""TCP connections over emulated paths: the common part of several methods' trials. Does not know how they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sojourn.devices import emulator_label
from sojourn.plan.section import HOUR_NS
from sojourn.plan.source import refuse
from sojourn.plan.values import duration, list_of, matching, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sojourn.plan.ask import Estimate, Lookup
    from sojourn.plan.trial import Trial
    from sojourn.plan.types import Plan

T = TypeVar("T")

CONGESTION = list_of(matching(r"[a-z][a-z0-9_]*", 'names such as "reno"'))
TRIAL = duration(10_000_000, HOUR_NS)
BUFFER = whole(4096, 1 << 30)
MSS = whole(536, 65_000)

OFF, AGAIN, ON = "off", "off again", "on"
"""Without the log, without it again as a control, and with it."""

TRIAL_NS = 700_000_000
"""The time of a trial without its traffic: log begun and converted, connections, last acknowledgements."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections over one path, with the log or without."""

    kind: str
    congestion: str
    pipe: str
    setting: str = ON


def check_path(plan: Plan, given: Lookup) -> None:
    """Refuse any bed other than one emulator, whose pipes are the path."""
    if len(plan.bed.devices) != 1 or emulator_label(plan.bed.devices[0]) is None:
        devices = given("bed.devices", list(plan.bed.devices))
        raise refuse(devices, "bed.devices", f'["emulate"] for {plan.study.method}: its pipes are the path')


def over_devices(plan: Plan, several: Sequence[T], pipe_of: Callable[[T], str]) -> list[tuple[int, str, T]]:
    """Return number, device and factors of every cell over every device; only emulators have pipes."""
    has_pipes = any(map(pipe_of, several))
    found = [
        (device, factors)
        for device in plan.bed.devices
        for factors in several
        if bool(pipe_of(factors)) == (has_pipes and emulator_label(device) is not None)
    ]
    numbers = {factors: number for number, factors in enumerate(dict.fromkeys(factors for _, factors in found))}
    return [(numbers[factors], device, factors) for device, factors in found]


def describe_connections(trials: Sequence[Trial[Connections]], cost: Estimate) -> dict[str, Any]:
    """Return what `--dry-run` shows: cells with their factors, trials and times."""
    one_of_each = {trial.cell: trial for trial in trials}
    return {
        "connections": len(trials),
        "rounds": max(trial.round for trial in trials) + 1,
        "settings": sorted({trial.factors.setting for trial in trials}),
        "measuring_ns": cost.measuring_ns,
        "total_ns": cost.total_ns,
        "cells": [
            {"cell": cell, "kind": of.factors.kind, "congestion": of.factors.congestion, "pipe": of.factors.pipe,
             "path": of.device}
            for cell, of in sorted(one_of_each.items())
        ],
    }  # fmt: skip
