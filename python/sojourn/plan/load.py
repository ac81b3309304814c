"""From a file, a study's name, `--quick` and `--set` to one checked plan. Precedence: file, quick or full, set.

Reads files; runs nothing.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn import studies as built_in
from sojourn.errors import RequestError, nearest
from sojourn.methods import DEFAULT, packages
from sojourn.plan.boxes import from_folder, of_devices, read_boxes, spread, without_boxes_of, without_others
from sojourn.plan.boxes import is_known as is_box_key
from sojourn.plan.check import check
from sojourn.plan.emulators import is_known, read_emulators, read_links
from sojourn.plan.line import read_lines
from sojourn.plan.real_bed import asked_by, is_file, load_real_bed
from sojourn.plan.real_bed import from_folder as hosts_from_folder
from sojourn.plan.routed import over_routers
from sojourn.plan.section import Declared, keys_of, read_section
from sojourn.plan.settings import SettingsPlan
from sojourn.plan.source import Given, Table, read_toml, refuse
from sojourn.plan.types import BedPlan, EmulatorPlan, HostPlan, Plan, Study, ask_of
from sojourn.plan.until import with_all_sessions
from sojourn.plan.values import one_of
from sojourn.records.decode import toml_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def load_plan(  # noqa: PLR0913 - one for each option
    source: str | Path,
    *,
    sets: Sequence[str] = (),
    quick: bool = False,
    full: bool = False,
    backend: str | None = None,
    devices: Sequence[str] = (),
    more: Table | None = None,
) -> Plan:
    """Return the plan of a built-in study or of a file, with the user's options; `more` has values from a program."""
    name, text = find_study(source)
    given = read_toml(text, name)
    table = {key: value for key, value in given.items() if not key.startswith(tuple(f"{one}." for one in VARIANTS))}
    table = hosts_from_folder(spread(table, name), Path(name).parent if Path(name).is_file() else Path())
    method = method_of(table)
    require_known(table, method)
    variants = {one: variant(given, one, method) for one in VARIANTS}
    if quick and full:
        raise RequestError("--quick beside --full: expected one of them")
    chosen = [one for one, wanted in (("quick", quick), ("full", full)) if wanted]
    for one in chosen:
        if not variants[one]:
            raise RequestError(f"{name}: --{one} has nothing to change: expected a [{one}] {VARIANTS[one]}")
        table = overlay(table, variants[one])
    if backend:
        table = overlay(table, asked_bed(backend, method_of(table)))
        table = (
            without_others(table) if is_file(backend) else table
        )  # of the paths that the study names it may have few
    for words in sets:
        table = overlay(table, read_set(words, method_of(table)))
    if devices:
        # A program on the command line is relative to the working folder, wherever the plan is.
        changed = from_folder(of_devices(table, devices, f"--device {devices[-1]}"), Path())
        require_known(changed, method_of(table))
        table = without_others(overlay(without_boxes_of(table, changed), changed))
    table |= more or {}
    asked = (
        [f"--{one}" for one in chosen]
        + ([f"--bed {backend}"] if backend else [])
        + [f"--set {words}" for words in sets]
        + [f"--device {words}" for words in devices]
    )
    return build(table, name, tuple(asked))


def asked_bed(bed: str, method: str) -> Table:
    """Return the values of `--bed`: a backend's name, or a file of real hosts and the devices between them."""
    where = f"--bed {bed}"
    if not is_file(bed):
        return {"bed.backend": Given(bed, where)}
    own = keys_of_method(method)
    asked = {key: given for key, given in asked_by(bed, where).items() if key in own}
    ask = ask_of(method)
    if ask.twins == "all":
        return asked
    # Two links between real hosts are two pairs of ports, the same in each bed. For streams they are the A/A control,
    # if the method has it as a path; trials are not spread over them otherwise.
    has_control = ask.headline and load_real_bed(bed).has_twins(None)
    return asked | {"bed.twins": Given(has_control, where)}


VARIANTS = {"quick": 'such as "pairs.at_most" = "30s"', "full": "with a study's values as they were published"}
"""Sections whose keys are dotted keys of other sections, and the purpose of each."""


def has_variant(source: str | Path, name: str) -> bool:
    """Return whether a plan has values of its own for `--quick` or `--full`, by that name."""
    source_name, text = find_study(source)
    given = read_toml(text, source_name)
    return bool(variant(given, name, method_of(given)))


def variant(given: Table, name: str, method: str) -> Table:
    """Return the values under [quick] or [full], by the keys that they change."""
    found = {key.removeprefix(f"{name}."): value for key, value in given.items() if key.startswith(f"{name}.")}
    require_known(found, method)
    return found


def plan_from_text(text: str, name: str, asked: tuple[str, ...]) -> Plan:
    """Return the plan in a text that a program wrote; refusals call it by its name."""
    table = spread(read_toml(text, name), name)
    require_known(table, method_of(table))
    return build(table, name, asked)


def find_study(source: str | Path) -> tuple[str, str]:
    """Return the name for refusals, and the text."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        return str(path), read_plan_file(path)
    names = built_in.names()
    if str(source) not in names:
        meant = nearest(str(source), names)
        hint = f"did you mean {meant}?" if meant else f"the studies are {', '.join(names)}"
        raise RequestError(f"no study or plan file {source}: {hint}")
    return f"{source}.toml", built_in.text(str(source))


def studies() -> list[tuple[str, str]]:
    """Return name and question of each built-in study."""
    return [(name, load_plan(name).study.question) for name in built_in.names()]


def read_plan_file(path: Path) -> str:
    """The text of a plan file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"{path}: cannot be read: {reason}") from error


@cache
def sections_of(method: str) -> dict[str, type]:
    """Return the sections of a method's plan, and their types."""
    ask = ask_of(method)
    emulate = {"emulate": EmulatorPlan} if ask.emulates else {}
    return (
        {"study": Study, "bed": BedPlan} | emulate | dict(ask.sections) | {"host": HostPlan, "settings": SettingsPlan}
    )


@cache
def keys_of_method(method: str) -> dict[str, Declared]:
    """Return every dotted key that a plan of the method may have."""
    unread = ask_of(method).unread
    found = {
        f"{name}.{key}": declared
        for name, kind in sections_of(method).items()
        for key, declared in keys_of(kind).items()
    }
    return {key: declared for key, declared in found.items() if key not in unread}


@cache
def keys_of_all() -> frozenset[str]:
    """Return every key that any method's plan may have."""
    return frozenset(key for method in packages() for key in keys_of_method(method))


def require_known(table: Table, method: str) -> None:
    """Refuse keys that no plan has, or that have no effect for the method."""
    own = keys_of_method(method)
    for key, given in table.items():
        if key in own or key.startswith(("bed.lines.", "bed.links.")):
            continue
        if is_box_key(key) and "bed.devices" in own:
            continue
        if "emulate" in sections_of(method) and is_known(key):
            continue
        if key in keys_of_all() or is_known(key):
            wanted = inside(key, own) or f"a key of {', '.join(sections_of(method))}"
            raise RequestError(f"{given.where}: {key} has no meaning for study.method = {method}: expected {wanted}")
        raise RequestError(f"{given.where}: unknown key {key}: expected {meant_by(key, own)}")


def meant_by(key: str, own: Mapping[str, Declared]) -> str:
    """Return the key that was probably meant, or the present name of an earlier one; else the keys of the section."""
    from sojourn.records.earlier import KEYS  # only a refusal needs it

    section_name, _, name = key.partition(".")
    if (today := f"{section_name}.{KEYS.get(name, name)}") in own:
        return today
    if close := nearest(key, own, 0.75):
        return close
    sections = sorted({name.split(".")[0] for name in own} | {*VARIANTS})
    return inside(key, own) or "one of the sections " + ", ".join(sections)


def inside(key: str, own: Mapping[str, Declared]) -> str:
    """Return the keys of the same section; empty if it has none."""
    section_name = key.split(".", maxsplit=1)[0]
    names = [name for name in own if name.startswith(f"{section_name}.")]
    return f"one of {', '.join(names)}" if names else ""


def method_of(table: Table) -> str:
    """Return the method, which determines the sections."""
    given = table.get("study.method", Given(DEFAULT, ""))
    if not isinstance(given.value, str) or given.value not in packages():
        raise refuse(given, "study.method", one_of(*packages()).expected_for(given.value))
    return given.value


def overlay(below: Table, above: Table) -> Table:
    """Return `below` with the values of `above`; a size or a rate above replaces one of another name below."""
    for alternatives in alternatives_of_all():
        if alternatives & above.keys():
            below = {key: value for key, value in below.items() if key not in alternatives}
    return below | above


@cache
def alternatives_of_all() -> frozenset[frozenset[str]]:
    """Return groups of keys of which a plan has one: setting one of them replaces the others."""
    return frozenset(
        frozenset(f"{name}.{key}" for key in keys)
        for method in packages()
        for name, kind in ask_of(method).sections.items()
        for keys in getattr(kind, "ALTERNATIVES", ())
    )


def read_set(words: str, method: str) -> Table:
    """Parse one `--set key=value`: the value is TOML, or plain words separated by commas."""
    key, equals, value = words.partition("=")
    key, value, where = key.strip(), value.strip(), f"--set {words}"
    if not equals or not key or not value:
        raise RequestError(f"{where}: expected key=value, such as --set rounds=20 or --set devices=wire,bridge")
    given = Given(plain_value(value), where)
    short = short_names(method)
    if key not in short and "." not in key and (meant := nearest(key, short, 0.7)):
        raise RequestError(f"{where}: unknown key {key}: did you mean {meant}?")
    dotted = short.get(key, key)
    require_known({dotted: given}, method)
    return {dotted: given}


def short_names(method: str) -> dict[str, str]:
    """Return the names for `--set` without their section; the method's own sections have precedence."""
    own = keys_of_method(method)
    order = [*ask_of(method).sections, "bed", "host", "settings", "emulate", "study"]
    ranked = sorted(own, key=lambda dotted: order.index(dotted.split(".")[0]))
    others = {key.split(".")[1]: key for key in sorted(keys_of_all())}  # to be refused by their full name
    return others | {key.split(".")[1]: key for key in reversed(ranked)} | dict(ask_of(method).words)


def plain_value(value: str) -> Any:
    """Parse a TOML value; else return text, or a list of texts if there are commas."""
    try:
        parsed: Any = toml_tables(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return [plain_value(part) for part in parts] if len(parts) > 1 or "," in value else value.strip("\"'")
    return parsed


def build(table: Table, name: str, asked: tuple[str, ...]) -> Plan:
    """Return the frozen plan of a table, with every default."""
    table = spread(table, name)
    method = method_of(table)
    ask = ask_of(method)
    require_known(table, method)
    sections: dict[str, Any] = {}
    for section_name, kind in ask.sections.items():
        values = read_section(kind, section_name, table, name)
        resolve = getattr(kind, "resolve", None)
        sections[section_name] = kind(**(resolve(values, table, name) if resolve else values))
    plan = Plan(
        study=Study(**read_section(Study, "study", table, name)),
        bed=read_bed(table, name, method, sections),
        host=HostPlan(**read_section(HostPlan, "host", table, name)),
        sections=sections,
        emulators=read_emulators(table, name, is_logged=ask.logs_emulators),
        asked=asked,
        settings=SettingsPlan(**read_section(SettingsPlan, "settings", table, name)),
    )
    plan = over_routers(ask.resolve(plan), table)
    plan = with_all_sessions(plan, lambda key, value: table.get(key, Given(value, name)))
    check(plan, table, name)
    return plan


def read_bed(table: Table, name: str, method: str, sections: Mapping[str, Any]) -> BedPlan:
    """Return [bed], with its simulated lines and rated links, and as many ports as the study needs."""
    ask = ask_of(method)
    own = read_section(BedPlan, "bed", table, name)
    if "bed.devices" in ask.unread:
        own["devices"] = ()  # the method measures with both ends of one cable
    needed = ask.ends(sections)._asdict()
    own |= {key: needed[key] for key in needed if own[key] is None}
    links = read_links(own["link_rate_bps"], own["link_delay_ns"], own["devices"], table)
    given_lines = {key: given for key, given in table.items() if key.startswith("bed.lines.")}
    lines = read_lines(given_lines, one_way=not ask.probes)
    if own["hosts"] is not None:
        own["outside_switches"] = load_real_bed(own["hosts"]).switches
    once = {one.name: one.default for one in fields(BedPlan) if one.name.startswith("link_")}
    return BedPlan(**own | once | {"links": links, "lines": lines, "boxes": read_boxes(table, name)})
