"""A log of TCP's state for as long as a block of a program runs, and what it holds.

The instrument logs while `cat` waits for the end of its input, which is a pipe of this process: so the log ends,
whole, with the block, and also where this process is killed.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.binary import find_instrument
from sojourn.errors import MachineError, RequestError, SojournError
from sojourn.export import log as written
from sojourn.export.summary import summarised
from sojourn.records import read_table
from sojourn.records.log_ends import read_log_end

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import polars as pl

NOT_TRUSTED = 4
CALLED = "sojourn-instrument: "
UNTIL_THE_END = ("--", "cat")
BEGUN = re.compile(r"(logs|will log, once enabled,) TCP")
Option = str | int | Sequence[str | int]


class TcpLog:
    """A log: it runs within its block, and is read behind it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Its folder."""

    def set(self, **options: Option) -> None:
        """Change what a running log asks for: `sojourn tcplog set`; port="all" takes a filter away."""
        ask("set", self.path, *words_of(options))

    def status(self) -> dict[str, Any]:
        """The account of a running log: what was seen, logged and not logged, by reason."""
        told: dict[str, Any] = json.loads(ask("status", self.path, "--json"))
        return told

    @cached_property
    def account(self) -> dict[str, Any]:
        """What stands at the end of a log: totals by direction and reason, why it ended, whether it is conserved."""
        if footer := read_log_end(self.path / "footer.json"):
            return footer
        raise RequestError(f"{self.path} has no account: its footer.json is missing or empty")

    @property
    def trusted(self) -> bool:
        """Whether every packet is accounted for, and nothing went wrong."""
        return self.account.get("conserved") is True and not self.account.get("warning")

    @cached_property
    def summary(self) -> pl.DataFrame:
        """A row for each flow: the columns of `sojourn tcplog summary`."""
        return summarised(written.TcpLog.open(self.path))

    def records(self, table: str = "tcp_samples") -> pl.DataFrame:
        """What the log holds, whole: tcp_samples, tcp_flows, tcp_account, tcp_private or tcp_gaps."""
        return read_table(self.path / "records", table).frame


@contextmanager
def tcplog(out: str | os.PathLike[str], **options: Option) -> Iterator[TcpLog]:
    """Log TCP's state at every packet while the block runs: `sojourn tcplog run --out OUT`.

    Its options are keywords, with "_" for "-": `port=5201`, `netns="blue"`, `ppl=10`; several values are a list. Raises
    RequestError where an option is wrong or the folder holds a log already, and MachineError where the kernel or this
    user's rights do not allow it.
    """
    argv = [find_instrument(), "tcplog", "run", "--out", str(out), *words_of(options), *UNTIL_THE_END]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stdin is not None
        said = line = process.stderr.readline()
        while line and not BEGUN.search(line):  # its notes before it begins, such as about a kernel with fewer features
            said += (line := process.stderr.readline())
        if not line:
            raise failed(process.wait(), said)
        log = TcpLog(Path(out))
        try:
            yield log
        finally:
            process.stdin.close()
            said = process.stderr.read()
            process.wait()
        if process.returncode not in {0, NOT_TRUSTED}:
            raise failed(process.returncode, said)


def ask(what: str, path: Path, *words: str) -> str:
    """Return the output of `sojourn tcplog WHAT` for a running log."""
    argv = [find_instrument(), "tcplog", what, str(path), *words]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise failed(done.returncode, done.stderr)
    return done.stdout


def words_of(options: Mapping[str, Option]) -> list[str]:
    """Return options in the notation of the command line."""
    words = []
    for name, value in options.items():
        if isinstance(value, bool):  # an option without a value: given, or not
            words += [f"--{name.replace('_', '-')}"] if value else []
            continue
        values = [value] if isinstance(value, str | int) else value
        words += [f"--{name.replace('_', '-')}={one}" for one in values]
    return words


def failed(status: int, said: str) -> SojournError:
    """Return the error of a program that ended with this status and output."""
    lines = [line for line in said.strip().splitlines() if line]
    sentence = (lines[-1] if lines else f"the log ended with status {status}").removeprefix(CALLED)
    return RequestError(sentence) if status == RequestError.status else MachineError(sentence)
