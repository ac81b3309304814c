"""Emulators among the devices, and cables that are held to a rate: their sections, from values already read.

[emulate] holds for every emulator, [emulate.<label>] for the device "emulate:<label>" alone; [bed.links.<device>] for
the cables of one arm. What the words of a pipe mean is the instrument's business. Runs nothing.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sojourn.devices import LABEL
from sojourn.errors import RequestError
from sojourn.plan.key import ABSENT, HOUR_NS
from sojourn.plan.keys import KEYS
from sojourn.plan.rates import UNLIMITED, Rate, cable_bps, cable_rate
from sojourn.plan.source import Given, Table, refuse
from sojourn.plan.types import DIRECT, BedPlan, EmulatorPlan, LinkPlan, Plan
from sojourn.plan.values import AUTO, UNITS_NS, Reader, as_duration, duration

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY = ""
"""The label of what holds for all emulators."""

OWN = tuple(key.split(".")[1] for key in KEYS if key.startswith("emulate."))
WORDS = ("words", "forward", "backward", "config")
"""Of these a section has its own, or those of [emulate]: never some of each."""

LINK_KEYS: dict[str, Reader] = {"rate": cable_rate(), "delay": duration(0, HOUR_NS)}
MOST_CABLES = 5


def is_known(key: str) -> bool:
    """Whether a dotted key belongs to one label, or to the cables of one arm."""
    section, _, name = key.rpartition(".")
    if section.startswith("emulate."):
        return name in OWN and LABEL.fullmatch(section.removeprefix("emulate.")) is not None
    return key.startswith("bed.links.")


def read_emulators(values: dict[str, Any], table: Table, *, is_logged: bool) -> dict[str, EmulatorPlan]:
    """What every emulator is started with; `is_logged`: unless it is said otherwise."""
    common = {name: values[f"emulate.{name}"] for name in OWN}
    given: dict[str, dict[str, Any]] = {}
    for key in (key for key in table if key.startswith("emulate.") and key.count(".") == 2):
        _, label, name = key.split(".")
        given.setdefault(label, {})[name] = read_own(key, name, table)
    refuse_both(common, "emulate", table)
    found = {EVERY: emulator(common, is_logged=is_logged)}
    for label, own in given.items():
        refuse_both(own, f"emulate.{label}", table)
        inherited = {name: value for name, value in common.items() if name not in WORDS or not set(WORDS) & own.keys()}
        nothing = {"words": ABSENT, "forward": ABSENT, "backward": ABSENT, "config": None}
        found[label] = emulator(nothing | inherited | own, is_logged=is_logged)
    return found


def read_own(key: str, name: str, table: Table) -> Any:
    """One value of one label."""
    reader = KEYS[f"emulate.{name}"].reader
    value = reader.read(table[key].value)
    if value is None:
        raise refuse(table[key], key, reader.expected)
    return None if value is AUTO else value


def refuse_both(own: Mapping[str, Any], section: str, table: Table) -> None:
    """A pipe of both directions beside one of a single one, or words beside a file, would be without effect."""
    asked = [name for name in WORDS if own.get(name, ABSENT) not in (ABSENT, None)]
    if len(asked) > 1 and set(asked) != {"forward", "backward"}:
        given = table[f"{section}.{asked[1]}"]
        both = f"{section}.{asked[1]} beside {section}.{asked[0]}"
        raise RequestError(f"{given.where}: {both}: expected words, or forward and backward, or config")


def emulator(own: dict[str, Any], *, is_logged: bool) -> EmulatorPlan:
    """The type of one section."""
    both = own["words"]
    forward, backward = (both if own[way] is ABSENT else own[way] for way in ("forward", "backward"))
    return EmulatorPlan(
        forward=None if forward is ABSENT else forward,
        backward=None if backward is ABSENT else backward,
        config=own["config"],
        seed=own["seed"],
        engine=own["engine"],
        cpu=own["cpu"],
        spin=own["spin"],
        fifo=own["fifo"],
        budget_ns=own["budget"],
        memory=own["memory"],
        path_cost_ns=own["path_cost"] or 0,
        log=is_logged if own["log"] is None else own["log"],
    )


def read_links(values: dict[str, Any], table: Table) -> dict[str, LinkPlan]:
    """By arm, what its cables are held to; arms without any are left out."""
    rate, delay = cable_bps(values["bed.link_rate"]), values["bed.link_delay"]
    common = LinkPlan((rate,), (delay,))
    given: dict[str, dict[str, tuple[Any, ...]]] = {}
    for key in (key for key in table if key.startswith("bed.links.")):
        device, _, name = key.removeprefix("bed.links.").rpartition(".")
        given.setdefault(device, {})[name] = read_cables(key, name, table[key])
    found = dict.fromkeys((DIRECT, *values["bed.devices"]), common)
    for device, own in given.items():
        if device not in found:
            there = next(where for key, where in table.items() if key.startswith(f"bed.links.{device}."))
            raise RequestError(f"{there.where}: bed.links.{device}: expected one of the arms {', '.join(found)}")
        rates = tuple(cable_bps(one) for one in own["rate"]) if "rate" in own else common.rates_bps
        found[device] = LinkPlan(rates, own.get("delay", common.delays_ns))
    return {device: link for device, link in found.items() if any(link.rates_bps) or any(link.delays_ns)}


def read_cables(key: str, name: str, given: Given) -> tuple[Any, ...]:
    """A value for every cable of an arm, or one for all of them; the same may be there twice."""
    if name not in LINK_KEYS:
        raise refuse(given, key, f"one of the keys {', '.join(LINK_KEYS)}")
    items = given.value if isinstance(given.value, list) else [given.value]
    read = tuple(LINK_KEYS[name].read(item) for item in items)
    if not read or len(read) > MOST_CABLES or any(one is None for one in read):
        raise refuse(given, key, f"for each cable from A to B, or once for all: {LINK_KEYS[name].expected}")
    return read


TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)\b")


def expected_ns(words: str) -> int:
    """About how long a pipe keeps a frame, for estimates alone: all times among its words together."""
    return int(sum(Decimal(number) * UNITS_NS[unit] for number, unit in TIME.findall(words)))


def emulator_tables(plan: Plan) -> dict[str, dict[str, Any]]:
    """[emulate] and its labels as a plan file has them, without what nobody asked for."""
    return {label: emulator_values(one) for label, one in plan.emulators.items()}


def emulator_values(one: EmulatorPlan) -> dict[str, Any]:
    """One section; None where there is nothing to write."""
    return {
        "words": one.forward if one.forward == one.backward else None,
        "forward": one.forward if one.forward != one.backward else None,
        "backward": one.backward if one.forward != one.backward else None,
        "config": one.config,
        "seed": one.seed,
        "engine": one.engine,
        "cpu": "auto" if one.cpu is None else one.cpu,
        "spin": "auto" if one.spin is None else one.spin,
        "fifo": "auto" if one.fifo is None else one.fifo,
        "budget": None if one.budget_ns is None else as_duration(one.budget_ns),
        "memory": one.memory,
        "path_cost": as_duration(one.path_cost_ns) if one.path_cost_ns else None,
        "log": one.log,
    }


def link_tables(bed: BedPlan) -> dict[str, dict[str, Any]]:
    """[bed.links.<device>] as a plan file has it: every arm by itself, whatever it was asked by."""
    return {
        device: {
            "rate": [UNLIMITED if bps is None else str(Rate("bit/s", Decimal(bps))) for bps in link.rates_bps],
            "delay": [as_duration(nanos) for nanos in link.delays_ns],
        }
        for device, link in bed.links.items()
    }
