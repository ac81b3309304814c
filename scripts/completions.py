"""Completion for bash, zsh and fish from the tree of commands: commands, options, known values, files.

Each script is one function that follows the typed words to their command, and offers its options and commands. The
program is not called while completing, so that it takes no time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripts.command_tree import Argument, Command


def completions(program: Command) -> dict[str, str]:
    """Return each script under the file name that its shell expects."""
    return {"sojourn.bash": bash(program), "_sojourn": zsh(program), "sojourn.fish": fish(program)}


def with_defaults(program: Command) -> Iterator[tuple[str, Command, tuple[Argument, ...]]]:
    """Return every command by its words, with all arguments that may follow: those of the default command too."""
    for words, one in program.all():
        inside = next((below.arguments for below in one.commands if below.name == one.default), ())
        given = {argument.options: argument for argument in one.arguments}
        yield " ".join(words), one, (*one.arguments, *(more for more in inside if more.options not in given))


def steps(program: Command) -> Iterator[tuple[str, str]]:
    """Return the words that lead from one command to the next."""
    for words, one in program.all():
        for command in one.commands:
            yield f"{' '.join(words)} {command.name}", f"{' '.join(words)} {command.name}"


def bash(program: Command) -> str:
    """For bash."""
    lines = [
        "# Completion of sojourn for bash; made from the programs' own help.",
        "_sojourn() {",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" at=sojourn words= files= i',
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        '        case "$at ${COMP_WORDS[i]}" in',
        *(f'        "{typed}") at="{to}" ;;' for typed, to in steps(program)),
        "        esac",
        "    done",
        '    case "$at $previous" in',
        *(f"    {pattern}) words={shell(choices)} files={files} ;;"
          for pattern, choices, files in bash_values(program)),
        '    *) case "$at" in',
        *(f'        "{at}") words={shell(words)} files={files} ;;' for at, words, files in bash_words(program)),
        "        esac",
        '        case "$cur" in -*) files= ;; esac ;;',
        "    esac",
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")',
        '    if [ -n "$files" ]; then',
        "        compopt -o filenames 2>/dev/null",
        '        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur")',
        "    fi",
        "}",
        "complete -F _sojourn sojourn",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def bash_values(program: Command) -> Iterator[tuple[str, str, str]]:
    """For each command's options that take a value: a pattern, the known values, and whether files are offered."""
    for at, _, arguments in with_defaults(program):
        for argument in arguments:
            if argument.options and argument.values:
                pattern = "|".join(f'"{at} {option}"' for option in argument.options)
                yield pattern, " ".join(argument.choices), "yes" * argument.is_path


def bash_words(program: Command) -> Iterator[tuple[str, str, str]]:
    """Return the offers of each command: commands, options, known positional values; and whether files are allowed."""
    for at, one, arguments in with_defaults(program):
        words = [command.name for command in one.commands]
        words += [option for argument in arguments for option in argument.options]
        words += [choice for argument in arguments if not argument.options for choice in argument.choices]
        words += ["--help"] if "--help" not in words else []
        yield at, " ".join(words), "yes" * any(one.is_path for one in arguments if not one.options)


def zsh(program: Command) -> str:
    """For zsh."""
    lines = [
        "#compdef sojourn",
        "# Completion of sojourn for zsh; made from the programs' own help.",
        "_sojourn() {",
        "    local at=sojourn files= i",
        "    local -a options things",
        "    for ((i = 2; i < CURRENT; i++)); do",
        '        case "$at ${words[i]}" in',
        *(f'        ("{typed}") at="{to}" ;;' for typed, to in steps(program)),
        "        esac",
        "    done",
        '    case "$at ${words[CURRENT-1]}" in',
        *(f"    ({pattern}) things=({choices}); compadd -a things; {'_files; ' if files else ''}return ;;"
          for pattern, choices, files in bash_values(program)),
        "    esac",
        '    case "$at" in',
        *(line for at, one, arguments in with_defaults(program) for line in zsh_command(at, one, arguments)),
        "    esac",
        '    if [[ "${words[CURRENT]}" == -* ]]; then',
        "        _describe -o option options",
        "    else",
        "        _describe command things",
        '        [[ -n "$files" ]] && _files',
        "    fi",
        "}",
        '_sojourn "$@"',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def zsh_command(at: str, one: Command, arguments: tuple[Argument, ...]) -> Iterator[str]:
    """Return the offers of a command, each with its meaning."""
    options = [(option, argument.help) for argument in arguments for option in argument.options]
    things = [(command.name, command.about) for command in one.commands]
    things += [(choice, "") for argument in arguments if not argument.options for choice in argument.choices]
    files = "yes" * any(argument.is_path for argument in arguments if not argument.options)
    yield f'    ("{at}")'
    for name, several in (("options", options), ("things", things)):
        yield f"        {name}=({' '.join(shell(described(*each)) for each in several)})"
    yield f"        files={files} ;;"


def described(word: str, help_: str) -> str:
    """Return a word with its meaning, for _describe."""
    return word.replace(":", "\\:") + (f":{short(help_)}" if help_ else "")


def fish(program: Command) -> str:
    """For fish."""
    lines = [
        "# Completion of sojourn for fish; made from the programs' own help.",
        "function __sojourn_at",
        "    set -l at sojourn",
        "    for word in (commandline -opc)[2..]",
        '        switch "$at $word"',
        *(f"            case {quoted(typed)}\n                set at {quoted(to)}" for typed, to in steps(program)),
        "        end",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
        "complete -c sojourn -f",
        *(line for at, one, arguments in with_defaults(program) for line in fish_command(at, one, arguments)),
    ]
    return "\n".join(lines) + "\n"


def fish_command(at: str, one: Command, arguments: tuple[Argument, ...]) -> Iterator[str]:
    """Return a line for each word that a command offers."""
    begin = f"complete -c sojourn -n {quoted(f'__sojourn_at {quoted(at)}')}"
    for command in one.commands:
        yield f"{begin} -a {quoted(command.name)} -d {quoted(short(command.about))}"
    for argument in arguments:
        forms = [f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in argument.options]
        takes = ["-r"] * bool(argument.values) + ["-F"] * argument.is_path if forms else ["-F"] * argument.is_path
        known = [f"-a {quoted(' '.join(argument.choices))}"] if argument.choices else []
        if forms or known or takes:
            yield " ".join([begin, *forms, *takes, *known, f"-d {quoted(short(argument.help))}"])


def short(help_: str) -> str:
    """The first sentence of a help, on one line."""
    return re.split(r"(?<=[a-z)])[.:;] ", " ".join(help_.split()))[0].rstrip(".")


def shell(words: str) -> str:
    """Return text quoted as one word of bash or zsh."""
    return "'" + words.replace("'", "'\\''") + "'"


def quoted(words: str) -> str:
    """Return text quoted as one word of fish."""
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"
