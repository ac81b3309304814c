"""Read JSON and TOML from untrusted sources: any text gives a value or one kind of error.

The libraries raise RecursionError for deep nesting, and a plain ValueError for a number of thousands of digits.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from typing import TYPE_CHECKING, Any

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 64 << 20
"""The largest JSON file of a log or a run that is read, as in the instrument (crates/instrument/src/bounded.rs)."""

MOST_VALUES = 1 << 18
"""The most values in such a file, counted before they are made: each takes up to 300 bytes.

Our longest list has 2^16.
"""

MOST_OF_RUN = 1 << 22
"""The same of what an analysis writes and of a bed's facts; a file of results below `MOST_BYTES` has half of it."""

DEEPEST = 64
"""The deepest nesting of arrays and tables; no plan or record of ours has ten levels."""

CONTAINERS = (dict, list)

QUOTED = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'')
LONG_KEY = re.compile(rf"(?:[\w-]+\s*\.\s*){{{DEEPEST + 1}}}")
"""A key of too many parts, where each quoted part is replaced by a letter."""

HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""One half of a UTF-16 surrogate pair, as JSON may write it; alone it is not a character."""

TOO_DEEP = f"more than {DEEPEST} arrays or tables within each other"


def json_value(text: str | bytes) -> Any:
    """Return the value of a JSON text, which can be written as UTF-8 again. Raises json.JSONDecodeError."""
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        value = json.loads(text)
        deep = _opens(text) > DEEPEST and is_deep(value)
        if HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError:
        raise
    except RecursionError:
        value, deep = None, True
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from error
    if deep:
        raise json.JSONDecodeError(TOO_DEEP, "", 0)
    return value


def octets_of(path: Path, *, follow: bool = True) -> bytes:
    """Return the content of a file, also over a link unless not to `follow` it.

    Raises RequestError if it is too long or no ordinary file, or OSError.
    """
    # Without O_NONBLOCK a pipe that somebody has put there is waited for.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise RequestError(f"{path} is damaged: it is no ordinary file")
        octets = file.read(MOST_BYTES + 1)
    if len(octets) > MOST_BYTES:
        raise RequestError(f"{path} is damaged: it has more than {MOST_BYTES >> 20} MiB")
    return octets


def text_of(path: Path) -> str:
    """Return the text of a file; raises RequestError as `octets_of`, UnicodeDecodeError, or OSError."""
    return octets_of(path).decode()


def json_text(path: Path, most: int = MOST_OF_RUN) -> str:
    """Return the text of a JSON file; raises also RequestError if it has more values than `most`."""
    text = text_of(path)
    if text.count(",") + _opens(text) > most:
        raise RequestError(f"{path} is damaged: it has more than {most:,} values")
    return text


def json_file(path: Path, most: int = MOST_VALUES) -> Any:
    """Return the value of a JSON file; raises RequestError if it is too long, json.JSONDecodeError, or OSError."""
    try:
        return json_value(json_text(path, most))
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError(str(error), "", 0) from error


def toml_tables(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises tomllib.TOMLDecodeError."""
    if any(LONG_KEY.search(QUOTED.sub("q", line)) for line in text.splitlines()):
        raise tomllib.TOMLDecodeError(TOO_DEEP)  # tomllib's memory grows with the square of a key's parts
    try:
        tables = tomllib.loads(text)
        deep = is_deep(tables)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        tables, deep = {}, True
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from error
    if deep:
        raise tomllib.TOMLDecodeError(TOO_DEEP)
    return tables


def _opens(text: str | bytes) -> int:
    """Count the opening brackets in a JSON text, including those in strings: an upper limit of its depth."""
    return text.count(b"[") + text.count(b"{") if isinstance(text, bytes) else text.count("[") + text.count("{")


def is_deep(value: Any, left: int = DEEPEST) -> bool:
    """Return whether arrays and tables are nested more than `left` times."""
    within = [value] if isinstance(value, CONTAINERS) else []
    for _ in range(left):
        each = (one.values() if isinstance(one, dict) else one for one in within)
        within = [inner for inners in each for inner in inners if isinstance(inner, CONTAINERS)]
        if not within:
            return False
    return bool(within)
