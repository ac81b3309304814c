"""What the commands print under `--json`, and how programs of ours speak line by line, each declared once.

JSON Schema (2020-12). docs/reference/schemas is written from it, and tests hold what commands really print against it:
`ours` has the commands of Python, taken from the types that are printed where there is one; the others have those of
the instrument, which are what its sources write. Prints nothing itself.
"""

from __future__ import annotations

from sojourn.cli.printed import clocks, emulators, logs, ours, probes, streams, taps
from sojourn.cli.printed.terms import Schema

__all__ = ["Schema", "schemas"]

PARTS = (ours, probes, streams, clocks, taps, emulators, logs)


def schemas() -> dict[str, Schema]:
    """Each command's schema, by the name of its file; what is printed as one object a line is one line's."""
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} | schema
        for part in PARTS
        for name, (title, schema) in part.PRINTED.items()
    }
