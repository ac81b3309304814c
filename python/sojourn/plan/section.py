"""Sections of a plan: frozen types whose fields declare the reader, default and meaning of each key.

A key is declared once, with `key`. The reading of a plan file (`read_section`), the effective plan (`written`) and the
reference page are derived from it. Knows no section.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, dataclass_transform

from sojourn.errors import RequestError
from sojourn.plan.source import refuse
from sojourn.plan.values import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.plan.source import Table
    from sojourn.plan.values import Reader

T = TypeVar("T")
HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
UNITS = ("_ns", "_bps")
"""Suffixes of fields whose key's value has the unit: `timeout_ns` holds the value of the key `timeout`."""


class Key(NamedTuple):
    """The reader and the meaning of a key; its default is the field's."""

    reader: Reader
    meaning: str
    name: str
    """The key's name in a plan, if it is not the field's name without the unit."""
    quiet: bool
    """Whether an effective plan omits it if it has its default."""


def key(reader: Reader, default: Any, meaning: str, *, name: str = "", quiet: bool = False) -> Any:
    """Declare a key as a field of a section; with the default MISSING it is required."""
    return field(default=None if default is AUTO else default, metadata={"key": Key(reader, meaning, name, quiet)})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key, field))
def section(kind: type[T]) -> type[T]:
    """Make a type a section: frozen, with keyword fields."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass(frozen=True, slots=True)
class Declared:
    """A key with its field and its default."""

    key: Key
    field: str
    default: Any
    """The default in a plan; MISSING for a required key."""


def keys_of(kind: Any) -> dict[str, Declared]:
    """Return the keys of a section's type, by their names in a plan."""
    found: dict[str, Declared] = {}
    for one in fields(kind):
        if "key" in one.metadata:
            spec: Key = one.metadata["key"]
            unit = next((unit for unit in UNITS if one.name.endswith(unit)), "")
            found[spec.name or one.name.removesuffix(unit)] = Declared(spec, one.name, one.default)
    return found


def read_section(kind: type, name: str, table: Table, source: str) -> dict[str, Any]:
    """Return the values of a section's fields, with defaults; `source` is the plan's name in refusals."""
    found: dict[str, Any] = {}
    for short, declared in keys_of(kind).items():
        dotted, reader = f"{name}.{short}", declared.key.reader
        if dotted not in table:
            if declared.default is MISSING:
                raise RequestError(f"{source}: the key {dotted} is missing: expected {reader.expected}")
            found[declared.field] = declared.default
            continue
        found[declared.field] = read_value(reader, dotted, table)
    return found


def read_value(reader: Reader, dotted: str, table: Table) -> Any:
    """Read one given value; None for "auto"."""
    value = reader.read(table[dotted].value)
    if value is None:
        raise refuse(table[dotted], dotted, reader.expected_for(table[dotted].value))
    return None if value is AUTO else value


def only_one(values: dict[str, Any], keys: Sequence[str], name: str, table: Table) -> str | None:
    """Return which of these keys of a section has a value; two of them exclude each other."""
    asked = [key for key in keys if values[key] is not None]
    if len(asked) > 1:
        both = f"{name}.{asked[1]} beside {name}.{asked[0]}"
        raise RequestError(f"{table[f'{name}.{asked[1]}'].where}: {both}: expected one of {', '.join(keys)}")
    return asked[0] if asked else None


def written(of: Any) -> dict[str, Any]:
    """Return the keys of a section in the notation of a plan file; without those that have no value."""
    found: dict[str, Any] = {}
    for short, declared in keys_of(type(of)).items():
        value = getattr(of, declared.field)
        if declared.key.quiet and value == declared.default:
            continue
        told = None if value is None and not takes_auto(declared.key.reader) else declared.key.reader.write(value)
        if told is not None:
            found[short] = told
    return found


def takes_auto(reader: Reader) -> bool:
    """Return whether "auto" is allowed, for which a plan holds None."""
    return reader.read("auto") is AUTO
