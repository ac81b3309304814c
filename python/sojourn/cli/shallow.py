"""The program with the options of a single command: evaluating those of all takes as long as loading the parser.

The others keep their names and lines of help, which the program's own help and "no such command" need.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer
    from typer.models import CommandInfo, TyperInfo


def for_word(app: typer.Typer, word: str | None) -> typer.Typer:
    """Return the program; only the command or the group called `word` has its options."""
    found = copy(app)
    found.registered_commands = [_command(one, word) for one in app.registered_commands]
    found.registered_groups = [_group(one, word) for one in app.registered_groups]
    return found


def _command(info: CommandInfo, word: str | None) -> CommandInfo:
    callback = info.callback
    if callback is None or word == (info.name or callback.__name__.replace("_", "-")):
        return info
    other = copy(info)
    other.callback = _only_told(callback)
    return other


def _group(info: TyperInfo, word: str | None) -> TyperInfo:
    if word == info.name or info.typer_instance is None:
        return info
    other = copy(info)
    other.typer_instance = copy(info.typer_instance)
    other.typer_instance.registered_commands = []
    return other


def _only_told(callback: Callable[..., object]) -> Callable[[], None]:
    """Return a function with only what a list of commands needs."""

    def told() -> None: ...

    told.__name__, told.__doc__ = callback.__name__, callback.__doc__
    return told
