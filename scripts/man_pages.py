"""Generate man pages (`sojourn.1`, `sojourn-emulate-run.1`, …) from the tree of commands, in the macros of man(7).

All text comes from the help of the commands; what roff would interpret is escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripts.command_tree import Argument, Command

STATUS = (
    ("0", "It went well."),
    ("1", "The answer is one to fail on (compare)."),
    ("2", "The request is wrong; the sentence says what of it."),
    ("3", "This machine cannot do it; the sentence says what would fix that."),
    ("4", "It ran, but its result must not be trusted."),
)


def pages(program: Command, version: str, date: str) -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    every = list(program.all())
    return {f"{'-'.join(words)}.1": page(words, one, version, date) for words, one in every}


def page(words: tuple[str, ...], one: Command, version: str, date: str) -> str:
    """Return the page of one command."""
    name = "-".join(words)
    lines = [f'.TH {name.upper()} 1 "{date}" "sojourn {version}" "Sojourn"', ".SH NAME"]
    lines += [f"{plain(name)} \\- {plain(first_line(one.about))}", ".SH SYNOPSIS", *synopsis(words, one)]
    lines += [".SH DESCRIPTION", *paragraphs(one.help or one.about)]
    if one.commands:
        lines += [".SH COMMANDS"]
        for command in one.commands:
            below = f"{name}-{command.name}"
            lines += [".TP", f".BR {quoted(below)} (1)", *text(first_line(command.about) + ".")]
    for heading, several in (("ARGUMENTS", one.positional), ("OPTIONS", one.options)):
        if described := [argument for argument in several if argument.help or argument.options]:
            lines += [f".SH {heading}", *(line for argument in described for line in listed(argument))]
    lines += paragraphs(one.after, ".SH NOTES")
    lines += [".SH EXIT STATUS", *(line for status, said in STATUS for line in (".TP", f".B {status}", *text(said)))]
    lines += [".SH SEE ALSO", *see_also(words)]
    return "\n".join(lines) + "\n"


def synopsis(words: tuple[str, ...], one: Command) -> Iterator[str]:
    """Yield the lines of a command's synopsis."""
    yield f".B {plain(' '.join(words))}"
    if one.options:
        yield r"[\fIOPTIONS\fR]"
    if one.commands:
        yield r"\fICOMMAND\fR" if not one.default else r"[\fICOMMAND\fR]"
    for argument in one.positional:
        value = rf"\fI{plain(' '.join(argument.values) or 'WORD')}\fR" + (" ..." if argument.is_repeated else "")
        yield value if argument.is_required else f"[{value}]"


def listed(argument: Argument) -> Iterator[str]:
    """Yield the lines of an option or argument, with its help, choices and default."""
    yield ".TP"
    named = ", ".join(rf"\fB{plain(one)}\fR" for one in argument.options)
    values = " ".join(rf"\fI{plain(one)}\fR" for one in argument.values)
    yield f"{named} {values}".strip() or r"\fIWORD\fR"
    more = [f"One of: {', '.join(argument.choices)}."] if 0 < len(argument.choices) <= 12 else []
    more += [f"Default: {argument.default}."] if argument.default else []
    yield from text(" ".join([sentence(argument.help), *more]) or "See the description.")


def sentence(words: str) -> str:
    """Return the help with a full stop at its end; the helps of Python's and Rust's commands differ in this."""
    return words if not words or words.endswith((".", "…", ")", ":", "]")) else f"{words}."


def see_also(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the reference to the command above, or for the first command to the guides."""
    if len(words) > 1:
        yield f".BR {quoted('-'.join(words[:-1]))} (1)"
    else:
        yield "The guides and the reference are in the folder docs of the sources."


def first_line(about: str) -> str:
    """Return the first line of a description, without its full stop."""
    return about.split("\n", maxsplit=1)[0].strip().rstrip(".")


def paragraphs(words: str, heading: str = "") -> list[str]:
    """Return the lines of a text whose paragraphs are divided by empty lines."""
    lines: list[str] = []
    for part in (part for part in re.split(r"\n\s*\n", words) if part.strip()):
        lines += ([".PP"] if lines else [heading] if heading else []) + text(part)
    return lines


def text(words: str) -> list[str]:
    """Return the lines that are not empty, each escaped."""
    return [plain(line.strip()) for line in words.splitlines() if line.strip()]


def plain(words: str) -> str:
    """Escape text so that roff interprets none of it."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def quoted(words: str) -> str:
    """Return the text as one quoted argument of a macro."""
    return f'"{plain(words)}"'
