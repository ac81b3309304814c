"""Write python/sojourn/records/schema.json from what `sojourn-instrument schema` prints, or check that it still agrees.

Usage: generate_schema.py [--binary PATH] [--check]; with `--from FILE` the declaration is read from a file instead.
Exit status 1 with --check when the file would change.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "python/sojourn/records/schema.json"


def main() -> int:
    """Generate, or with --check compare."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--binary", default=str(ROOT / "target/release/sojourn-instrument"))
    arguments.add_argument("--from", dest="source", type=Path)
    arguments.add_argument("--check", action="store_true")
    asked = arguments.parse_args()
    if asked.source is not None:
        declaration = asked.source.read_text()
    else:
        declaration = subprocess.run([asked.binary, "schema"], check=True, capture_output=True, text=True).stdout
    text = render(json.loads(declaration))
    if not asked.check:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print(f"{TARGET.relative_to(ROOT)} differs from the Rust declaration: run `make schema`", file=sys.stderr)
    return 1


def render(declaration: dict[str, Any]) -> str:
    """Return the file's text, with one line per column and finding, so that each change is one changed line."""
    tables = ",\n".join(
        f'{json.dumps(name)}: {{"named": {json.dumps(table["named"])}, "fields": [\n{lines(table["fields"])}\n]}}'
        for name, table in declaration["tables"].items()
    )
    version, findings = json.dumps(declaration["version"]), lines(declaration["findings"])
    return f'{{"version": {version}, "tables": {{\n{tables}\n}}, "findings": [\n{findings}\n]}}\n'


def lines(entries: list[dict[str, Any]]) -> str:
    """JSON, one entry a line."""
    return ",\n".join(json.dumps(one, ensure_ascii=False) for one in entries)


if __name__ == "__main__":
    sys.exit(main())
