"""`sojourn new`: a package of one's own that adds a device or a method, with tests that pass as it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from sojourn.errors import RequestError, did_you_mean

Kind = Annotated[str, typer.Argument(metavar="device|method", help="What the package adds.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name for plans: up to 8 lower-case letters and digits.")]


AsJson = Annotated[bool, typer.Option("--json", help="Print the folder and its files as JSON.")]


def new(kind: Kind, name: Name, *, as_json: AsJson = False) -> None:
    """Write a package that adds a device or a method to Sojourn, in a folder NAME.

    Its tests pass unchanged: pip install -e NAME && pytest NAME. Example: sojourn new device patch
    """
    from sojourn.cli.new_templates import FILES
    from sojourn.records.whole_file import write_for_all

    if kind not in FILES:
        raise RequestError(f"new {kind}: expected {' or '.join(sorted(FILES))}{did_you_mean(kind, FILES)}")
    require_free(kind, name)
    folder = Path(name)
    if folder.exists():
        raise RequestError(f"{folder} is there already: choose another name, or another folder to write it in")
    module = f"sojourn_{name}"
    words = {
        "@NAME@": name,
        "@MODULE@": module,
        "@KIND@": kind,
        "@OBJECT@": ":DEVICE" if kind == "device" else "",
        "@ONLY@": f"{module}.py" if kind == "device" else module,
    }
    written = []
    for path, text in FILES[kind].items():
        written.append(target := folder / filled(path, words))
        target.parent.mkdir(parents=True, exist_ok=True)
        write_for_all(target, filled(text, words).encode())
    if as_json:
        print(json.dumps({"folder": str(folder), "files": sorted(map(str, written))}))
        return
    print(f"{folder}: pip install -e {folder} && pytest {folder}")


def filled(text: str, words: dict[str, str]) -> str:
    """Return the text with its placeholders replaced."""
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def require_free(kind: str, name: str) -> None:
    """Refuse a name that is not valid in plans, or is taken."""
    from sojourn.devices import modes
    from sojourn.methods import packages

    if not re.fullmatch(r"[a-z][a-z0-9]{0,7}", name):
        raise RequestError(f"'{name}': expected a small letter, then up to seven small letters and digits")
    if name in (modes() if kind == "device" else packages()):
        raise RequestError(f"there is a {kind} '{name}' already: choose another name")
