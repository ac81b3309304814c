"""Every command of `sojourn` with its options, as one tree: ours as declared here, the instrument's as declared there.

The instrument's commands come from `sojourn-instrument commands`, the tree that its help is made of. Formats nothing:
man pages are in man_pages.py, completion in completions.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer

from sojourn.cli import BY_HAND, OF_TCPLOG
from sojourn.cli.commands import app
from sojourn.plan import studies

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
INSTRUMENT = ROOT / ".venv/bin/sojourn-instrument"
WORD = re.compile(r"[a-z][a-z0-9-]*")
"""An alternative of a metavar that is typed literally: `netns` of `netns|sim|FILE.toml`."""


@dataclass(frozen=True)
class Argument:
    """An option, or a positional argument: its notation and its meaning."""

    options: tuple[str, ...]
    values: tuple[str, ...]
    help: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_path: bool = False
    is_required: bool = False
    is_repeated: bool = False


@dataclass(frozen=True)
class Command:
    """A command, its own arguments, and the commands below it."""

    name: str
    about: str
    help: str
    after: str = ""
    arguments: tuple[Argument, ...] = ()
    commands: tuple[Command, ...] = ()
    default: str = ""
    """The default command below it."""

    def all(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
        """Return the command itself and all below it, each with its words."""
        words = (*above, self.name)
        yield words, self
        for command in self.commands:
            yield from command.all(words)

    @property
    def options(self) -> tuple[Argument, ...]:
        """The arguments with a name."""
        return tuple(one for one in self.arguments if one.options)

    @property
    def positional(self) -> tuple[Argument, ...]:
        """The positional arguments."""
        return tuple(one for one in self.arguments if not one.options)


OURS_BESIDE = {
    "clock": (Argument(("--plot",), ("FILE",), "Draw offset and skew over time: a .svg or .html.", is_path=True),),
    "match": (
        Argument(("--master",), ("URL",), "With --engine spark: the cluster, by default local[*]."),
        Argument(
            ("--report",),
            ("FILE",),
            "Write a page of the delays: distribution, over throughput, time and size; a .html.",
            is_path=True,
        ),
    ),
}
"""Our options for commands of the instrument."""

SHORT_FOR = {"emulate": "run"}
"""`sojourn emulate LEFT RIGHT` is short for `sojourn emulate run LEFT RIGHT`."""


def tree() -> Command:
    """Return the whole program."""
    theirs = {one.name: one for one in of_instrument(asked_of_instrument()).commands}
    return joined(of_typer("sojourn", typer.main.get_command(app)), theirs)


def asked_of_instrument() -> dict[str, Any]:
    """Return the instrument's own description."""
    done = subprocess.run([INSTRUMENT, "commands"], capture_output=True, text=True, check=True)
    described: dict[str, Any] = json.loads(done.stdout)
    return described


def joined(program: Command, theirs: dict[str, Command]) -> Command:
    """Return our commands, with the instrument's in place of those that only call it."""
    found = []
    for command in program.commands:
        if command.name in BY_HAND:
            beside = OURS_BESIDE.get(command.name, ())
            its = theirs[command.name]
            arguments = (*its.arguments, *beside)
            merged = {one.name: one for one in its.commands}
            for one in command.commands:
                merged[one.name] = beside_each_other(merged[one.name], one) if one.name in merged else one
            default = SHORT_FOR.get(command.name, "")
            found.append(replace(its, arguments=arguments, commands=tuple(merged.values()), default=default))
        elif command.name == "tcplog":
            its_own = {one.name: one for one in theirs["tcplog"].commands}
            inside = tuple(its_own[one.name] if one.name in OF_TCPLOG else one for one in command.commands)
            found.append(replace(command, commands=inside))
        else:
            found.append(command)
    return replace(program, commands=tuple(found))


def beside_each_other(its: Command, ours: Command) -> Command:
    """Return a command of both sides: the instrument's, with the options that only we have."""
    known = {argument.options for argument in its.arguments}
    return replace(its, arguments=(*its.arguments, *(one for one in ours.options if one.options not in known)))


def of_instrument(one: dict[str, Any]) -> Command:
    """A command of the instrument."""
    arguments = tuple(
        Argument(
            tuple(argument["options"]),
            tuple(argument["values"]),
            argument["help"],
            argument["default"],
            tuple(argument["choices"]),
            argument["is_path"] or any(value in {"FILE", "DIR", "FOLDER", "PATH"} for value in argument["values"]),
            argument["is_required"],
            argument["is_repeated"],
        )
        for argument in one["arguments"]
    )
    inside = tuple(of_instrument(command) for command in one["commands"])
    return Command(one["name"], one["about"], one["help"], one["after"], arguments, inside)


def of_typer(name: str, one: Any) -> Command:
    """Return a command of ours from typer."""
    inside = tuple(of_typer(word, command) for word, command in getattr(one, "commands", {}).items())
    arguments = tuple(of_parameter(parameter) for parameter in one.params if not parameter.hidden)
    help_ = (one.help or "").replace("\b", "").strip()
    about = one.short_help or help_.split("\n\n")[0].replace("\n", " ")
    return Command(name, about.rstrip("."), help_, "", arguments, inside)


def of_parameter(one: Any) -> Argument:
    """An option or argument of ours."""
    named = any(option.startswith("-") for option in one.opts)
    kind = one.type_descriptor.annotation
    holds_path = Path in {kind, *get_args(kind)}
    metavar = (one.metavar or ("PATH" if holds_path else one.name.upper())).strip("[]")
    takes_value = not (named and one.is_flag)
    choices, is_path = alternatives(metavar)
    return Argument(
        (*one.opts, *one.secondary_opts) if named else (),
        (metavar,) if takes_value else (),
        one.help or "",
        str(one.default) if takes_value and isinstance(one.default, str | int) else "",
        choices if takes_value else (),
        is_path or holds_path,
        one.required,
        one.multiple or one.nargs != 1,
    )


def alternatives(metavar: str) -> tuple[tuple[str, ...], bool]:
    """Return the literal alternatives of a metavar, and whether a file is allowed: `netns|sim|FILE.toml`."""
    parts = [part.strip() for part in metavar.split("|")]
    is_path = any(re.search(r"FILE|FOLDER|PLAN|^RUN$|^OUT\d?$", part) for part in parts)
    if parts[0] == "NAME" and "PLAN.toml" in parts:
        return (*(name for name, _ in studies()), "published"), True
    words = tuple(part for part in parts if WORD.fullmatch(part))
    return (words if len(parts) > 1 else ()), is_path
