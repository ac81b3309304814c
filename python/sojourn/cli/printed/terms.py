"""The few functions that declare a printed value, and the JSON Schema for each of them.

A record has the named members and no others, unless it says otherwise. Knows no command.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

Printed = dict[str, tuple[str, Schema]]
"""By the name of its file: the command, and the schema of its output."""

SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "string", type(None): "null"}


def record(**members: str | Schema) -> Schema:
    """An object with these members and no others; `number?` may be null, a name that ends with `_` may be absent."""
    properties = {name.removesuffix("_"): kind_of(kind) for name, kind in members.items()}
    required = [name for name in members if not name.endswith("_")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def event(name: str, /, **members: str | Schema) -> Schema:
    """Return a line whose member `event` identifies it."""
    return record(event={"const": name}, **members)


def joined(*records: Schema) -> Schema:
    """Return a record with the members of all these; the last one of a name is used."""
    properties: dict[str, Schema] = {}
    required: dict[str, None] = {}
    for one in records:
        properties |= one["properties"]
        required |= dict.fromkeys(one["required"])
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def each(kind: str | Schema) -> Schema:
    """Return a list of these."""
    return {"type": "array", "items": kind_of(kind)}


def both(kind: str | Schema) -> Schema:
    """Return a list of two of these."""
    return {**each(kind), "minItems": 2, "maxItems": 2}


def by_name(kind: str | Schema, *names: str) -> Schema:
    """Return an object with these values, whose keys are data, or only the given names."""
    values = {"type": "object", "additionalProperties": kind_of(kind)}
    return values | ({"propertyNames": {"enum": list(names)}} if names else {})


def or_null(kind: Schema) -> Schema:
    """Return this, or null."""
    return {"anyOf": [kind, {"type": "null"}]}


def either(*kinds: Schema) -> Schema:
    """Return one of these."""
    return {"anyOf": list(kinds)}


def said(meaning: str, kind: str | Schema) -> Schema:
    """Return a kind with a description."""
    return {"description": meaning} | kind_of(kind)


def kind_of(kind: str | Schema) -> Schema:
    """Return a kind by its name, or unchanged."""
    if not isinstance(kind, str):
        return kind
    return {"type": [kind[:-1], "null"]} if kind.endswith("?") else {"type": kind} if kind else {}


def one_of(*words: str) -> Schema:
    """Return one of these words."""
    return {"enum": list(words)}


def of_type(kind: Any) -> Schema:
    """Return the schema of a type: a plain one, a list, a union with None, words, or a dataclass with its fields."""
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    inside, origin = typing.get_args(kind), typing.get_origin(kind)
    if origin is typing.Literal:
        return one_of(*inside)
    if origin in {list, tuple}:
        return each(of_type(inside[0]))
    if origin in {types.UnionType, typing.Union}:
        return {"type": [SIMPLE[one] for one in inside]}
    hints = typing.get_type_hints(kind)
    return record(**{field.name: of_type(hints[field.name]) for field in fields(kind)})
