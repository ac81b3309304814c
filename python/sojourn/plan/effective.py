"""Write a plan as TOML with every effective value, for the run folder and for `--resume`.

Comments have the user's request and the meaning of each key. [quick] is omitted, because it has been applied or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomlkit

from sojourn.devices import emulator_label
from sojourn.plan.boxes import box_tables
from sojourn.plan.emulators import EVERY, emulator_values, link_tables
from sojourn.plan.section import keys_of, written
from sojourn.plan.settings import is_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tomlkit.items import Table

    from sojourn.plan.types import Plan


def effective_toml(plan: Plan) -> str:
    """Return the plan as a plan file."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment("What was asked, and every effective value: a plan like any other, to copy and to edit.")
    )
    for words in plan.asked:
        document.add(tomlkit.comment(f"asked: {' '.join(words.split())}"))  # a comment cannot hold a line break
    document.add("study", section_table(plan, "study", plan.study))
    bed = section_table(plan, "bed", plan.bed)
    if plan.bed.simulated:
        bed.add("lines", tables_of(plan.bed.lines))
    if plan.bed.links:
        bed.add("links", tables_of(link_tables(plan.bed)))
    if plan.bed.boxes:
        bed.add("boxes", tables_of(box_tables(plan.bed.boxes)))
    document.add("bed", bed)
    for name, section in plan.sections.items():
        document.add(name, section_table(plan, name, section))
    document.add("host", section_table(plan, "host", plan.host))
    if not is_empty(plan.settings):
        document.add("settings", section_table(plan, "settings", plan.settings))
    if has_emulators(plan):
        document.add("emulate", emulate_table(plan))
    return tomlkit.dumps(document)


def section_table(plan: Plan, name: str, of: Any) -> Table:
    """Return one section, each key with its meaning, without keys that have no effect."""
    unread = plan.ask.unread | (unused(plan) if name == "bed" else frozenset())
    return table_of(type(of), {key: value for key, value in written(of).items() if f"{name}.{key}" not in unread})


def table_of(kind: type, values: Mapping[str, Any]) -> Table:
    """Return a table of keys with their values and meanings."""
    declared, table = keys_of(kind), tomlkit.table()
    for key, value in values.items():
        item = tomlkit.item(value)
        item.comment(declared[key].key.meaning)
        table.add(key, item)
    return table


def unused(plan: Plan) -> frozenset[str]:
    """Return the keys of [bed] without an effect: those of a shaper, a queue and further ports that do not exist."""
    names = ["near", "far", "bypass"] if plan.ask.probes else []
    names += ["shaper", "burst_bytes"] if plan.bed.rate_bps is None else []
    names += ["queue_bytes"] if plan.bed.rate_bps is None and not plan.bed.links else []
    return frozenset(f"bed.{name}" for name in names)


def emulate_table(plan: Plan) -> Table:
    """Return [emulate] with its labels."""
    found = table_of(type(plan.emulators[EVERY]), emulator_values(plan.emulators[EVERY]))
    for label, one in plan.emulators.items():
        if label != EVERY:
            found.add(label, table_of(type(one), emulator_values(one)))
    return found


def has_emulators(plan: Plan) -> bool:
    """Return whether any device of the plan is an emulator."""
    return plan.ask.emulates and any(emulator_label(device) is not None for device in plan.bed.devices)


def tables_of(named: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a table for each device, with nested tables on one line."""
    table = tomlkit.table(is_super_table=True)
    for name, values in named.items():
        one = tomlkit.table()
        for key, value in values.items():
            inline = tomlkit.inline_table()
            if isinstance(value, dict):
                inline.update(value)
            one.add(key, inline if isinstance(value, dict) else value)
        table.add(name, one)
    return table
