"""The origin of each value of a plan, so that a refusal can name file, line, key and what was expected.

Reads TOML into one flat table, "pairs.rounds" -> Given. tomllib keeps no positions: lines are searched in the text.
Does not know which keys exist.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from sojourn.errors import RequestError
from sojourn.records.decode import toml_tables


@dataclass(frozen=True, slots=True)
class Given:
    """One value and its origin: "my.toml, line 12" or "--set rounds=0"."""

    value: Any
    where: str


Table = dict[str, Given]


def refuse(given: Given, key: str, expected: str) -> RequestError:
    """Return the refusal of a value, as one sentence."""
    return RequestError(f"{given.where}: {key} = {show(given.value)}: expected {expected}")


def show(value: object) -> str:
    """Return a value approximately as TOML writes it, so that it can be found."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)


def read_toml(text: str, name: str) -> Table:
    """Return every value of the text under its dotted key."""
    try:
        sections = toml_tables(text)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(not_toml(error, name)) from error
    found: Table = {}
    lines = key_lines(text)
    for section, entries in sections.items():
        if not isinstance(entries, dict):
            place = where(name, lines, section)
            raise RequestError(f"{place}: {section} is outside any section: expected a [section] above it")
        found |= flatten(section, entries, name, lines)
    return found


AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def not_toml(error: tomllib.TOMLDecodeError, name: str) -> str:
    """Return the sentence for a text that is not TOML, with the position first as in every refusal."""
    problem = str(error)
    at = AT.search(problem)
    place = f"{name}, line {at[1]}, column {at[2]}" if at and at[1] else f"{name}, at its end" if at else name
    return f"{place}: not TOML: {AT.sub('', problem)}"


BY_DEVICE = ("bed.lines", "bed.links", "bed.boxes", "emulate", "hosts", "paths")
"""Sections that have a table for each device, label, host or path."""


def flatten(section: str, entries: dict[str, Any], name: str, lines: dict[str, int]) -> Table:
    """Return the entries of one section; [quick] may nest its keys, and some sections have a table for each device."""
    found: Table = {}
    for key, value in entries.items():
        dotted = f"{section}.{key}"
        nested = section.split(".", maxsplit=1)[0] == "quick" or dotted in BY_DEVICE or section in BY_DEVICE
        if nested and isinstance(value, dict):
            found |= flatten(dotted, value, name, lines)
        else:
            found[dotted] = Given(value, where(name, lines, dotted))
    return found


def where(name: str, lines: dict[str, int], dotted: str) -> str:
    """Return the file, and the line if known."""
    number = lines.get(dotted)
    return f"{name}, line {number}" if number else name


HEADER = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+")
KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def key_lines(text: str) -> dict[str, int]:
    """Return the line on which each dotted key first appears, sections included."""
    lines: dict[str, int] = {}
    section = ""
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if closing:  # inside a multi-line string, which may contain anything
            closing = None if closing in line else closing
            continue
        if header := HEADER.match(line):
            section = bare(header[1])
            lines.setdefault(section, number)
        elif key := KEY.match(line):
            lines.setdefault(f"{section}.{bare(key[1])}" if section else bare(key[1]), number)
            closing = next((quote for quote in ('"""', "'''") if line.count(quote) == 1), None)
    return lines


def bare(key: str) -> str:
    """Return a key without quotes or blanks: `"pairs.rounds"` and `pairs . rounds` are equal."""
    return re.sub(r"""["'\s]""", "", key)
