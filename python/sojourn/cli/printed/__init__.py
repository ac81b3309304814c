"""The output of commands under `--json`, and the line protocols of our programs, each declared once.

JSON Schema (2020-12). docs/reference/schemas is written from it, and tests compare actual output with it: `ours` has
the commands of Python, derived from the printed types where there is one; the others have those of the instrument,
which its sources write. Prints nothing itself.
"""

from __future__ import annotations

from sojourn.cli.printed import clocks, emulators, logs, ours, probes, streams, taps
from sojourn.cli.printed.terms import Schema

__all__ = ["Schema", "schemas"]

PARTS = (ours, probes, streams, clocks, taps, emulators, logs)


def schemas() -> dict[str, Schema]:
    """Return each command's schema, by the name of its file; for one object per line, that of one line."""
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} | schema
        for part in PARTS
        for name, (title, schema) in part.PRINTED.items()
    }
