"""Analysis and report of root's run, in a program that can only read, and write in the run folder.

Records come from other hosts and from earlier days, and their readers are large libraries. So no right of the run is
left where they are read (docs/reference/rights.md). An ordinary user's run is analysed in the same process.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.errors import DENIED, DoubtfulError, MachineError, RequestError, SojournError

if TYPE_CHECKING:
    from collections.abc import Sequence

ERRORS = {one.status: one for one in (RequestError, MachineError, DoubtfulError)}
PR_SET_PDEATHSIG = 1
ANSWER = "error: "
"""How the last line of the program begins, if it met an error: what others print at its start comes before."""

MOST_TRACE = 1 << 16
"""Characters of the end of a traceback."""


def analyse_and_report(
    folder: Path, *, report: bool = True, vector: bool = False, beside: Sequence[Path] = ()
) -> Path | None:
    """Analyse a run and, if asked to, write its report; return the report's page. Says on standard error what it does.

    Raises what the analysis raises, and MachineError if its program was killed.
    """
    if not has_rights():
        return analyse_here(folder, report=report, vector=vector, beside=beside)
    asked = {"folder": str(folder), "report": report, "vector": vector, "beside": list(map(str, beside))}
    asked["parent"] = os.getpid()
    # A session of its own has no terminal to type into; Ctrl-C is for this process, which ends the other.
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "sojourn.cli.apart", json.dumps(asked)],
        stdin=None if beside else subprocess.DEVNULL,  # `--beside` may name a pipe or standard input
        stdout=subprocess.PIPE,
        close_fds=not beside,
        start_new_session=True,
        text=True,
        errors="replace",
    ) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    _raise_what_it_said(said, process.returncode, folder)
    return folder / "report" / "index.html" if report else None


def has_rights() -> bool:
    """Return whether this process is root's, and so has rights that an analysis does not need."""
    return os.geteuid() == 0


class OfTheProgramError(Exception):
    """A traceback of the program that analysed, as the cause of the same exception here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _raise_what_it_said(said: str, status: int, folder: Path) -> None:
    answer = said.rpartition("\n")[2]
    if answer.startswith(ANSWER):
        told = json.loads(answer.removeprefix(ANSWER))
        if "errno" in told:
            raise OSError(told["errno"], os.strerror(told["errno"]), told["filename"])
        if "traceback" in told:
            fault: type[Exception] = type(told["name"], (Exception,), {})
            raise fault(told["message"]) from OfTheProgramError(told["traceback"])
        raise ERRORS.get(told["status"], SojournError)(told["message"])
    if status:
        how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        again = f"the records are whole, and `sojourn report {folder}` analyses them again"
        raise MachineError(f"the analysis {how}: {again}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"


def analyse_here(folder: Path, *, report: bool, vector: bool, beside: Sequence[Path]) -> Path | None:
    """Analyse and report in this process."""
    from rich.console import Console

    told = Console(file=sys.stderr, highlight=False, emoji=False)
    told.print("analysing", markup=False)
    from sojourn.analysis import analyse
    from sojourn.report import write_report
    from sojourn.report.beside import read_result

    others = [read_result(path) for path in beside]
    analyse(folder)
    if not report:
        return None
    told.print("writing the report", markup=False)
    return write_report(folder, vector=vector, beside=others)


def main() -> None:
    """Do what the argument asks for, and write on standard output which error it met, if any.

    What others print, as methods of other packages may, goes to standard error.
    """
    answer = os.dup(1)
    os.dup2(2, 1)
    asked: dict[str, Any] = json.loads(sys.argv[1])
    _end_with(asked["parent"])
    from sojourn.confine import only_write

    folder = Path(asked["folder"])
    try:
        only_write(folder.resolve())
        analyse_here(
            folder, report=asked["report"], vector=asked["vector"], beside=[Path(one) for one in asked["beside"]]
        )
    except Exception as error:
        os.write(answer, f"\n{ANSWER}{json.dumps(_told(error))}".encode())


def _told(error: Exception) -> dict[str, Any]:
    """Return an error as JSON."""
    if isinstance(error, SojournError):
        return {"status": error.status, "message": str(error)}
    if isinstance(error, OSError) and error.errno in DENIED:
        name = error.filename
        return {"errno": error.errno, "filename": os.fsdecode(name) if isinstance(name, str | bytes) else name}
    trace = "".join(traceback.format_exception(error))
    return {"name": type(error).__name__, "message": str(error), "traceback": trace[-MOST_TRACE:]}


def _end_with(parent: int) -> None:
    """Have this program killed when the thread that started it ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno() or errno.EINVAL, "prctl (PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main()
