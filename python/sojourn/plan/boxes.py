"""The user's own boxes among the devices: [bed.boxes.<label>], `bed.device`, and `--device` of the command line.

The device of a section [bed.boxes.rules] is "box:rules". The path of a program is relative to the folder of the plan
file, or to the working folder; an effective plan has its absolute path. Runs nothing.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn import devices
from sojourn.errors import RequestError, nearest
from sojourn.plan.section import keys_of, read_section, written
from sojourn.plan.source import Given, Table, refuse
from sojourn.plan.types import BedPlan, BoxPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sojourn.plan.ask import Lookup
    from sojourn.plan.types import Plan

SECTION = "bed.boxes."
SHORT = "bed.device"
"""A single box without a label: `device = { up = "./my-box.sh" }`."""

PROGRAM = 'a program of yours with its arguments, such as "./my-box.sh"'


def is_known(key: str) -> bool:
    """Return whether a dotted key belongs to a box."""
    section, _, name = key.rpartition(".")
    label = section.removeprefix(SECTION)
    return section.startswith(SECTION) and bool(devices.BOX_LABEL.fullmatch(label)) and name in keys_of(BoxPlan)


def spread(table: Table, name: str) -> Table:
    """Return the table with `bed.device` expanded to its section and device, and absolute paths of programs."""
    found = dict(table)
    if (given := found.pop(SHORT, None)) is not None:
        found |= _of_short(given, found)
    return from_folder(found, Path(name).parent if Path(name).is_file() else Path())


def from_folder(table: Table, here: Path) -> Table:
    """Return the table with absolute paths of the boxes' programs; relative ones are relative to `here`."""
    found = dict(table)
    for key in [key for key in found if key.startswith(SECTION) and key.endswith((".up", ".down"))]:
        value = found[key].value
        if isinstance(value, str) and value.strip():
            found[key] = Given(by_path(value, here, found[key], key), found[key].where)
    return found


def _of_short(given: Given, table: Table) -> Table:
    """Replace the devices that are not for comparison by one box, or by the named device."""
    if isinstance(given.value, str):
        return of_devices(table, [given.value], given.where)
    if not isinstance(given.value, dict) or not isinstance(given.value.get("up"), str):
        raise refuse(given, SHORT, '{ up = "./my-box.sh" }, and if needed down, within and routed, or a device\'s name')
    asked = of_devices(table, [given.value["up"]], given.where, are_programs=True)
    section = next(key for key in asked if key.startswith(SECTION)).rpartition(".")[0]
    for key, value in given.value.items():
        if key not in keys_of(BoxPlan):
            meant = nearest(key, keys_of(BoxPlan)) or ", ".join(keys_of(BoxPlan))
            raise RequestError(f"{given.where}: unknown key {SHORT}.{key}: expected {meant}")
        asked[f"{section}.{key}"] = Given(value, given.where)
    return asked


def of_devices(table: Table, asked: Sequence[str], where: str, *, are_programs: bool = False) -> Table:
    """Apply `--device`: devices for comparison stay, all others are replaced by the given ones."""
    planned = planned_devices(table)
    names = [one for one in planned if isinstance(one, str) and devices.known(one) and devices.rank(one) == 0]
    found: Table = {}
    own_labels = []
    for words in asked:
        own, program = (None, words) if are_programs else labelled(words)
        if own is not None or are_programs or is_program(words):
            label = _label(words, where, names) if own is None else _own_label(own, program, where)
            found[f"{SECTION}{label}.up"] = Given(program, where)
            names.append(f"box:{label}")
            own_labels += [] if own is None else [own]
        elif words not in names:
            names.append(words)
    for own in own_labels:
        _require_own_interfaces(own, names, where)
    return {"bed.devices": Given(names, where)} | found


def planned_devices(table: Table) -> list[Any]:
    """Return what a table names as its devices; the default where it names none."""
    planned = table["bed.devices"].value if "bed.devices" in table else list(keys_of(BedPlan)["devices"].default)
    return planned if isinstance(planned, list) else [planned]


def without_others(table: Table) -> Table:
    """Return the table without rates and lines of removed paths."""
    kept = {"direct", *planned_devices(table)}
    return {
        key: given
        for key, given in table.items()
        if not key.startswith("bed.links.") or key.removeprefix("bed.links.").rpartition(".")[0] in kept
    }


def without_boxes_of(table: Table, changed: Table) -> Table:
    """Return the table without the boxes whose labels are given anew: the options of one box do not suit another."""
    again = {key.rpartition(".")[0] + "." for key in changed if key.startswith(SECTION)}
    return {key: given for key, given in table.items() if not key.startswith(tuple(again))}


def labelled(words: str) -> tuple[str | None, str]:
    """Split `LABEL=PROGRAM`; return None and the words if there is no label.

    A "=" after a slash or a space belongs to the program: `./a=b.sh`, `./rules.sh n=20`.
    """
    label, equals, program = words.partition("=")
    if not equals or not label or re.search(r"[/\s]", label):
        return None, words
    return label, program


def is_program(words: str) -> bool:
    """Return whether the words are the path of a program, and not the name of a device."""
    return "/" in words or ".sh" in words or not re.fullmatch(devices.NAME, words)


def read_boxes(table: Table, name: str) -> dict[str, BoxPlan]:
    """Return the boxes by device."""
    labels = dict.fromkeys(key.removeprefix(SECTION).rpartition(".")[0] for key in table if key.startswith(SECTION))
    found = {}
    for label in labels:
        section = f"{SECTION}{label}"
        found[f"box:{label}"] = BoxPlan(**read_section(BoxPlan, section, table, name))
    return found


def check_boxes(plan: Plan, given: Lookup) -> None:
    """Check that every box has a section, every section a box, and that the programs are executable."""
    for device in plan.bed.devices:
        known = devices.known(device)
        if known and known.mode.is_box and device not in plan.bed.boxes and not plan.bed.simulated:
            value = Given(device, given("bed.devices", device).where)
            raise refuse(value, "bed.devices", f"a section [bed.boxes.{known.label or 'LABEL'}] with up = {PROGRAM}")
    for device, box in plan.bed.boxes.items():
        key = f"{SECTION}{device.removeprefix('box:')}"
        if device not in plan.bed.devices:
            raise refuse(given(f"{key}.up", box.up), f"{key}.up", f'the device "{device}" in bed.devices')
        for name, words in (("up", box.up), ("down", box.down)):
            if words is not None:
                _check_program(given(f"{key}.{name}", words), f"{key}.{name}", words)


def _check_program(given: Given, key: str, words: str) -> None:
    split = shlex.split(words)
    if not split:
        raise refuse(given, key, PROGRAM)
    path = Path(split[0])
    if not path.is_file():
        raise refuse(Given(str(path), given.where), key, "a program that is there")
    if not os.access(path, os.X_OK):
        raise refuse(
            Given(str(path), given.where), key, f"a program that may be run: chmod +x {shlex.quote(str(path))}"
        )


def box_tables(boxes: Mapping[str, BoxPlan]) -> dict[str, dict[str, Any]]:
    """Return [bed.boxes.<label>] in the notation of a plan file."""
    return {device.removeprefix("box:"): written(box) for device, box in boxes.items()}


def by_path(words: str, here: Path, given: Given, key: str) -> str:
    """Return a program with its arguments; a relative path is relative to `here`."""
    try:
        program, *arguments = shlex.split(words)
    except ValueError:
        raise refuse(given, key, f"{PROGRAM}; a quotation mark is not closed") from None
    return shlex.join([os.path.abspath(here / program), *arguments])  # noqa: PTH100 - links in it stay what they are


def _own_label(label: str, program: str, where: str) -> str:
    """Return the label that the user gave; raises RequestError if it is malformed, or names no program."""
    if not devices.BOX_LABEL.fullmatch(label):
        wanted = f"a label has 1 to {devices.LONGEST_LABEL} small letters, digits and dashes"
        raise RequestError(f"{where}: expected LABEL=PROGRAM, and {label!r} is no label: {wanted}")
    if not is_program(program) and devices.known(program):
        raise RequestError(f"{where}: expected LABEL=PROGRAM, and {program} is a device's name, not a program")
    return label


def _require_own_interfaces(label: str, names: Sequence[str], where: str) -> None:
    """Raise RequestError if another device's interfaces would have the names of this box's."""
    slug = devices.parse(f"box:{label}").slug
    same = [one for one in names if (known := devices.known(one)) and known.slug == slug]
    if len(same) > 1:
        other = next((one for one in same if one != f"box:{label}"), None)
        if other is None:
            raise RequestError(f"{where}: two boxes have the label {label}: expected one label for each")
        raise RequestError(
            f"{where}: expected another label than {label}: interfaces have its first {devices.LONGEST_SLUG} letters "
            f"and digits, and those of {other} have the same"
        )


def _label(words: str, where: str, names: Sequence[str]) -> str:
    """Return a label derived from the program's name, so that no interface name is used twice."""
    split = words.split()
    stem = re.sub(r"[^a-z0-9]+", "-", Path(split[0]).stem.lower()).strip("-") if split else ""
    if not stem:
        raise RequestError(f"{where}: expected a device's name, or {PROGRAM}")
    taken = {known.slug for one in names if (known := devices.known(one))}
    for label in (stem[: devices.LONGEST_LABEL], *(f"{stem[:6]}{number}" for number in range(2, 100))):
        if devices.parse(f"box:{label}").slug not in taken:
            return label
    raise RequestError(f"{where}: more than a hundred boxes have one name")
