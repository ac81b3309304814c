"""Every command that prints JSON has a published schema; tables of schemas and of exit statuses name every command."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import typer

from scripts.generate_reference import COMMANDS
from sojourn.cli.commands import app
from sojourn.cli.printed import schemas
from sojourn.instruments import find_instrument
from tests.unit.printed_json import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OF_NOBODY = {"tcp send", "tcp receive"}
"""`sojourn` has no command `tcp`: studies ask the instrument."""

RUN_THEMSELVES = {"clock", "capture"}
"""Commands with subcommands that do something without one."""

PROTOCOLS = {"probe blocks", "stream serve", "capture serve", "tcplog serve", "tcplog watch"}

INDEX = SCHEMAS / "README.md"
STATUSES = SCHEMAS.parent / "exit-status.md"


def test_every_command_with_json_has_a_schema() -> None:
    described = json.loads(subprocess.run([find_instrument(), "commands"], capture_output=True, check=True).stdout)
    having = {*ours(typer.main.get_command(app)), *of_the_instrument(described["commands"])} - OF_NOBODY
    assert having > {"run", "probe icmp", "emulate run", "clock sim", "tcplog status"}
    assert having | PROTOCOLS <= titled(), "docs/reference/schemas has none of these"


def ours(group: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of Python that has --json, in words."""
    for name, command in getattr(group, "commands", {}).items():
        yield from ours(command, (*words, name))
        if any("--json" in getattr(option, "opts", ()) for option in command.params):
            yield " ".join((*words, name))


def of_the_instrument(commands: list[dict[str, Any]], words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the instrument that has --json, in words."""
    for one in commands:
        here = (*words, one["name"])
        yield from of_the_instrument(one["commands"], here)
        if any("--json" in argument["options"] for argument in one["arguments"]):
            yield " ".join(here)


def titled() -> set[str]:
    """The commands that titles of schemas name."""
    words = [word for one in schemas().values() for word in str(one["title"]).removeprefix("sojourn ").split(", ")]
    return {re.sub(r" (--|[A-Z]).*", "", word) for word in words if not word.startswith("an object")}


@pytest.mark.parametrize("page", [INDEX, STATUSES], ids=["schemas", "statuses"])
def test_table_lists_exactly_the_commands_with_json(page: Path) -> None:
    every = {" ".join(words) for words in COMMANDS if words}
    every -= {" ".join(words[:-1]) for words in COMMANDS if words} - RUN_THEMSELVES
    column = 0 if page == STATUSES else 1
    table = page.read_text(encoding="utf-8").rpartition("| command")[2]
    rows = [line.strip("| \n").split(" | ") for line in table.splitlines() if line.startswith(("| `", "| one", "| a ",
                                                                           "| JSON", "| what", "| none"))]  # fmt: skip
    named = {name for row in rows for name in re.findall(r"`([a-z][a-z ]*)`", outside(row[column]))}
    assert named == every


def outside(cell: str) -> str:
    """A cell without what is in brackets."""
    return re.sub(r"\([^()]*\)", "", cell)


def test_index_states_how_each_schema_is_printed() -> None:
    text = INDEX.read_text(encoding="utf-8")
    rows = {kind: line for kind in ("one JSON value", "a JSON object a line") for line in text.splitlines()
            if line.startswith(f"| {kind} ")}  # fmt: skip
    by_line = {
        re.sub(r" --json.*|, an object.*", "", str(one["title"])).removeprefix("sojourn ").split(", ")[0]
        for one in schemas().values()
        if "an object a line" in str(one["title"])
    } - PROTOCOLS
    for name in by_line - {"match --live", "tcplog summary OUT OUT2"}:
        assert f"`{name}`" in rows["a JSON object a line"], name
        assert f"`{name}`" not in rows["one JSON value"], name
