"""Man pages (`sojourn.1`, `sojourn-emulate-run.1`, …) of the tree of commands, in the macros of man(7).

Decides nothing about what is said: every word is the help's. Escapes what roff would obey.
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
    """Every page by the name of its file."""
    every = list(program.all())
    return {f"{'-'.join(words)}.1": page(words, one, version, date) for words, one in every}


def page(words: tuple[str, ...], one: Command, version: str, date: str) -> str:
    """One command's page."""
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
    """How it is called."""
    yield f".B {plain(' '.join(words))}"
    if one.options:
        yield r"[\fIOPTIONS\fR]"
    if one.commands:
        yield r"\fICOMMAND\fR" if not one.default else r"[\fICOMMAND\fR]"
    for argument in one.positional:
        value = rf"\fI{plain(' '.join(argument.values) or 'WORD')}\fR" + (" ..." if argument.is_repeated else "")
        yield value if argument.is_required else f"[{value}]"


def listed(argument: Argument) -> Iterator[str]:
    """An option or argument with what it means."""
    yield ".TP"
    named = ", ".join(rf"\fB{plain(one)}\fR" for one in argument.options)
    values = " ".join(rf"\fI{plain(one)}\fR" for one in argument.values)
    yield f"{named} {values}".strip() or r"\fIWORD\fR"
    more = [f"One of: {', '.join(argument.choices)}."] if 0 < len(argument.choices) <= 12 else []
    more += [f"Default: {argument.default}."] if argument.default else []
    yield from text(" ".join([sentence(argument.help), *more]) or "See the description.")


def sentence(words: str) -> str:
    """The help with a full stop, as both sides' helps end differently."""
    return words if not words or words.endswith((".", "…", ")", ":", "]")) else f"{words}."


def see_also(words: tuple[str, ...]) -> Iterator[str]:
    """The page above, and where the guides are."""
    if len(words) > 1:
        yield f".BR {quoted('-'.join(words[:-1]))} (1)"
    else:
        yield "The guides and the reference are in the folder docs of the sources."


def first_line(about: str) -> str:
    """A line that names a command's purpose."""
    return about.split("\n", maxsplit=1)[0].strip().rstrip(".")


def paragraphs(words: str, heading: str = "") -> list[str]:
    """Text whose empty lines divide paragraphs."""
    lines: list[str] = []
    for part in (part for part in re.split(r"\n\s*\n", words) if part.strip()):
        lines += ([".PP"] if lines else [heading] if heading else []) + text(part)
    return lines


def text(words: str) -> list[str]:
    """Filled text: a line each."""
    return [plain(line.strip()) for line in words.splitlines() if line.strip()]


def plain(words: str) -> str:
    """Words of which roff obeys none."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def quoted(words: str) -> str:
    """One argument of a macro."""
    return f'"{plain(words)}"'
