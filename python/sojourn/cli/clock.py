"""`sojourn clock … --plot FILE`: the instrument measures and records; its records are drawn when it has ended.

Without --plot the instrument does everything. Terminal, signals and exit status are its own in either case.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from sojourn.binary import find_instrument
from sojourn.errors import RequestError
from sojourn.records.scratch import scratch

OPTION = "--plot"
SUFFIXES = (".svg", ".html")


def clock(words: list[str]) -> int:
    """Measure and draw; return the instrument's exit status."""
    words, target = without_plot(words)
    if target.suffix not in SUFFIXES:
        raise RequestError(f"{OPTION} {target}: expected a file that ends in {' or '.join(SUFFIXES)}")
    if not target.parent.is_dir():
        raise RequestError(f"{OPTION} {target}: there is no folder {target.parent}")
    with scratch("clock") as spare:
        folder, words = with_record(words, spare)
        status = run_instrument(["clock", *words])
        if status not in {2, 3}:
            draw(folder, target)
    return status


def without_plot(words: list[str]) -> tuple[list[str], Path]:
    """Return the words without the option, and the file that it names."""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name != OPTION:
            continue
        end = index + (1 if equals else 2)
        if not (value := value if equals else "".join(words[index + 1 : end])):
            break
        return words[:index] + words[end:], Path(value)
    raise RequestError(f"{OPTION}: expected a file that ends in {' or '.join(SUFFIXES)}")


def with_record(words: list[str], spare: Path) -> tuple[Path, list[str]]:
    """Return where the instrument records: in the requested folder, or a temporary one; and its arguments."""
    for index, word in enumerate(words):
        if word.startswith("--record="):
            return Path(word.partition("=")[2]), words
        if word == "--record" and index + 1 < len(words):
            return Path(words[index + 1]), words
    return spare, [*words, "--record", str(spare)]


def run_instrument(words: list[str]) -> int:
    """Run the instrument in the foreground; it handles an interrupt itself, and ends cleanly."""
    with subprocess.Popen([find_instrument(), *words]) as process:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()


def draw(folder: Path, target: Path) -> None:
    """Draw the records of a folder, if it has any lines."""
    from sojourn.records.whole_file import write_whole
    from sojourn.report.clocks import Clocks

    clocks = Clocks.read(folder)
    if clocks.lines.is_empty():
        return
    write_whole(target, clocks.svg() if target.suffix == ".svg" else clocks.html())
