"""Man pages and completion: of every command, free of faults, and completing in real shells."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from scripts.command_tree import Command, tree
from scripts.completions import completions
from scripts.generate_reference import COMMANDS
from scripts.man_pages import pages, plain

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def program() -> Command:
    return tree()


@pytest.fixture(scope="module")
def scripts(program: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for name, text in completions(program).items():
        (folder / name).write_text(text)
    return folder


def test_the_tree_has_every_command_of_the_reference_page(program: Command) -> None:
    have = {words[1:] for words, _ in program.all()}
    assert have == {*COMMANDS}, "scripts/generate_reference.py lists the commands of docs/reference/commands.md"


def test_commands_have_python_and_instrument_options(program: Command) -> None:
    options = {" ".join(words): {o for one in command.options for o in one.options} for words, command in program.all()}
    assert "--fail-if" in options["sojourn compare"]
    assert {"--delay", "--loss", "--json"} <= options["sojourn emulate run"]
    assert "--limit" in options["sojourn emulate verify"]
    assert "--plot" in options["sojourn clock"]
    assert "--once" in options["sojourn tcplog top"]
    assert "--out" in options["sojourn tcplog run"]


def test_every_man_page_describes_its_command(program: Command) -> None:
    made = pages(program, "1.2.3", "2026-11-26")
    assert len(made) == len([*program.all()])
    for name, text in made.items():
        assert re.search(r"^\.SH NAME\n\S+ \\- \S.{5,}$", text, re.MULTILINE), name
        assert ".SH EXIT STATUS" in text, name
    assert "\\fB\\-\\-fail\\-if\\fR" in made["sojourn-compare.1"]
    assert plain(".dot \\ -") == "\\&.dot \\e \\-"


@pytest.mark.may_skip
@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_man_shows_every_page_without_a_warning(program: Command, tmp_path: Path) -> None:
    for name, text in pages(program, "1.2.3", "2026-11-26").items():
        (tmp_path / name).write_text(text)
    everything = sorted(map(str, tmp_path.glob("*.1")))
    done = subprocess.run(["man", "--warnings=all", "-l", *everything], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(".\x08", "", done.stdout)
    assert "--fail-if" in shown


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="needs mandoc")
def test_mandoc_reports_no_error(program: Command, tmp_path: Path) -> None:
    for name, text in pages(program, "1.2.3", "2026-11-26").items():
        (tmp_path / name).write_text(text)
    argv = ["mandoc", "-T", "lint", "-W", "warning", *map(str, tmp_path.glob("*.1"))]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


BASH = """
source "$1/sojourn.bash"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_sojourn
printf '%s\\n' "${COMPREPLY[@]}"
"""

ZSH = """
compdef() { :; }
compadd() { [[ "$1" == -a ]] && print -rl -- "${(@P)2}"; }
_files() { print -rl -- *(N); }
_describe() { local last="${@[-1]}"; print -rl -- "${(@)${(@P)last}%%:*}"; }
words=("${@:2}"); CURRENT=$(($# - 1))
source "$1/_sojourn"
"""

CASES = [
    (("compare", "--fail"), {"--fail-if", "--fail-on"}, {"--margin"}),
    (("compare", "--fail-on", ""), {"worse", "difference", "inconclusive", "never"}, {"--json"}),
    (("run", "bridge-l"), {"bridge-latency"}, {"bridge-modes"}),
    (("run", "bridge-latency", "--bed", ""), {"netns", "sim"}, {"emulate"}),
    (("tcplog", ""), {"run", "top", "plot", "convert"}, {"compare"}),
    (("tcplog", "run", "--o"), {"--out"}, {"--port"}),
    (("emulate", "eth1", "eth2", "--del"), {"--delay"}, {"--loss"}),
    (("emulate", "run", "--backend", ""), {"user", "kernel"}, {"--json"}),
    (("report", "ru"), {"runs"}, {"report"}),
]


def offered(argv: list[str], words: tuple[str, ...], folder: Path) -> set[str]:
    """What a shell offers for these words, in a folder with a folder `runs`."""
    (folder / "runs").mkdir(exist_ok=True)
    done = subprocess.run([*argv, "sojourn", *words], capture_output=True, text=True, check=False, cwd=folder)
    assert done.stderr == ""
    return {line for line in done.stdout.splitlines() if line.startswith(words[-1])}


@pytest.mark.parametrize(("words", "has", "lacks"), CASES)
def test_bash_completion_works(
    words: tuple[str, ...], has: set[str], lacks: set[str], scripts: Path, tmp_path: Path
) -> None:
    found = offered(["bash", "--norc", "-c", BASH, "bash", str(scripts)], words, tmp_path)
    assert has <= found
    assert not lacks & found


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
@pytest.mark.parametrize(("words", "has", "lacks"), CASES)
def test_zsh_completion_works(
    words: tuple[str, ...], has: set[str], lacks: set[str], scripts: Path, tmp_path: Path
) -> None:
    found = offered(["zsh", "-f", "-c", ZSH, "zsh", str(scripts)], words, tmp_path)
    assert has <= found
    assert not lacks & found


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
@pytest.mark.parametrize(("words", "has", "lacks"), CASES)
def test_fish_completion_works(
    words: tuple[str, ...], has: set[str], lacks: set[str], scripts: Path, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    line = " ".join(["sojourn", *words])
    script = f"source {scripts}/sojourn.fish; complete -C {line!r}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    found = {one.split("\t")[0].rstrip("/") for one in done.stdout.splitlines()}
    assert has <= found
    assert not lacks & found
