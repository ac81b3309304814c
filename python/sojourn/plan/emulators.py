"""Emulators among the devices, and cables with a rate: their sections, from values already read.

[emulate] applies to every emulator, [emulate.<label>] to the device "emulate:<label>"; [bed.links.<device>] to the
cables of one path. The configuration strings of pipes are parsed by the instrument. Runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.devices import LABEL
from sojourn.errors import RequestError
from sojourn.plan.rates import cable_rate
from sojourn.plan.section import HOUR_NS, keys_of, read_section, read_value, written
from sojourn.plan.source import Given, Table, refuse
from sojourn.plan.types import DIRECT, BedPlan, EmulatorPlan, LinkPlan
from sojourn.plan.values import Reader, duration
from sojourn.units import find_durations

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY = ""
"""The label of the section for all emulators."""

WORDS = ("words", "forward", "backward", "config")
"""A section has its own keys of these, or those of [emulate]: never some of each."""

LINK_KEYS: dict[str, Reader] = {"rate": cable_rate(), "delay": duration(0, HOUR_NS)}
MOST_CABLES = 5


def is_known(key: str) -> bool:
    """Return whether a dotted key belongs to one label, or to the cables of one path."""
    section, _, name = key.rpartition(".")
    if section.startswith("emulate."):
        return name in keys_of(EmulatorPlan) and LABEL.fullmatch(section.removeprefix("emulate.")) is not None
    return key.startswith("bed.links.")


def read_emulators(table: Table, name: str, *, is_logged: bool) -> dict[str, EmulatorPlan]:
    """Return the configuration of every emulator; `is_logged`: the default of `log`."""
    common = read_section(EmulatorPlan, "emulate", table, name)
    given: dict[str, dict[str, Any]] = {}
    for key in (key for key in table if key.startswith("emulate.") and key.count(".") == 2):
        _, label, short = key.split(".")
        declared = keys_of(EmulatorPlan)[short]
        given.setdefault(label, {})[declared.field] = read_value(declared.key.reader, key, table)
    refuse_both(common, "emulate", table)
    found = {EVERY: emulator(common, is_logged=is_logged)}
    for label, own in given.items():
        refuse_both(own, f"emulate.{label}", table)
        inherited = common if not set(WORDS) & own.keys() else common | dict.fromkeys(WORDS)
        found[label] = emulator(inherited | own, is_logged=is_logged)
    return found


def refuse_both(own: Mapping[str, Any], section: str, table: Table) -> None:
    """Refuse `words` beside `forward` or `backward`, and any of these beside `config`: one would have no effect."""
    asked = [name for name in WORDS if own.get(name) is not None]
    if len(asked) > 1 and set(asked) != {"forward", "backward"}:
        given = table[f"{section}.{asked[1]}"]
        both = f"{section}.{asked[1]} beside {section}.{asked[0]}"
        raise RequestError(f"{given.where}: {both}: expected words, or forward and backward, or config")


def emulator(own: dict[str, Any], *, is_logged: bool) -> EmulatorPlan:
    """Make the type of one section."""
    both = {way: own["words"] if own[way] is None else own[way] for way in ("forward", "backward")}
    log = is_logged if own["log"] is None else own["log"]
    return EmulatorPlan(**own | both | {"words": None, "log": log})


def read_links(rate: int | None, delay: int, devices: tuple[str, ...], table: Table) -> dict[str, LinkPlan]:
    """Return rates and delays of cables by path; `rate` and `delay` are the defaults."""
    common = LinkPlan((rate or None,), (delay,))
    given: dict[str, dict[str, tuple[Any, ...]]] = {}
    for key in (key for key in table if key.startswith("bed.links.")):
        device, _, name = key.removeprefix("bed.links.").rpartition(".")
        given.setdefault(device, {})[name] = read_cables(key, name, table[key])
    found = dict.fromkeys((DIRECT, *devices), common)
    for device, own in given.items():
        if device not in found:
            there = next(where for key, where in table.items() if key.startswith(f"bed.links.{device}."))
            raise RequestError(f"{there.where}: bed.links.{device}: expected one of the paths {', '.join(found)}")
        rates = tuple(one or None for one in own["rate"]) if "rate" in own else common.rates_bps
        found[device] = LinkPlan(rates, own.get("delay", common.delays_ns))
    return {device: link for device, link in found.items() if any(link.rates_bps) or any(link.delays_ns)}


def read_cables(key: str, name: str, given: Given) -> tuple[Any, ...]:
    """Return a value for each cable of a path, or one for all; values may repeat."""
    if name not in LINK_KEYS:
        raise refuse(given, key, f"one of the keys {', '.join(LINK_KEYS)}")
    items = given.value if isinstance(given.value, list) else [given.value]
    read = tuple(LINK_KEYS[name].read(item) for item in items)
    if not read or len(read) > MOST_CABLES or any(one is None for one in read):
        raise refuse(given, key, f"for each cable from A to B, or once for all: {LINK_KEYS[name].expected}")
    return read


def expected_ns(words: str) -> int:
    """Estimate how long a pipe holds a frame: the sum of all times in its configuration string."""
    return int(sum(find_durations(words)))


def emulator_values(one: EmulatorPlan) -> dict[str, Any]:
    """Return one section in the notation of a plan file; equal pipes of both directions as `words`."""
    found = written(one)
    if one.forward is not None and one.forward == one.backward:
        found = {"words": one.forward} | {key: value for key, value in found.items() if key not in WORDS}
    return found


def link_tables(bed: BedPlan) -> dict[str, dict[str, Any]]:
    """Return [bed.links.<device>] in the notation of a plan file: every path separately."""
    rate, delay = LINK_KEYS["rate"], LINK_KEYS["delay"]
    return {
        device: {
            "rate": [rate.write(bps or 0) for bps in link.rates_bps],
            "delay": [delay.write(nanos) for nanos in link.delays_ns],
        }
        for device, link in bed.links.items()
    }
