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
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.errors import DENIED, DoubtfulError, MachineError, RequestError, SojournError

if TYPE_CHECKING:
    from collections.abc import Sequence

ERRORS = {one.status: one for one in (RequestError, MachineError, DoubtfulError)}
PR_SET_PDEATHSIG = 1


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
    argv = [sys.executable, "-P", "-m", "sojourn.cli.apart", json.dumps(asked)]
    # Ctrl-C is for this process, which ends the other: a signal that is blocked when a program starts stays blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with process:
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


def _raise_what_it_said(said: str, status: int, folder: Path) -> None:
    if said:
        told = json.loads(said)
        if "errno" in told:
            raise OSError(told["errno"], os.strerror(told["errno"]), told["filename"])
        raise ERRORS.get(told["status"], SojournError)(told["message"])
    again = f"the records are whole, and `sojourn report {folder}` analyses them again"
    if status < 0:
        raise MachineError(f"the analysis was ended by {signal.Signals(-status).name}: {again}")
    if status:
        raise SojournError(f"the analysis failed by a fault of Sojourn (see above): {again}")


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
    """Do what the argument asks for, and write on standard output which error it met, if any."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    _end_with(asked["parent"])
    from sojourn.confine import only_write

    folder = Path(asked["folder"])
    try:
        only_write(folder.resolve())
        with redirect_stdout(sys.stderr):  # a method of another package may print
            analyse_here(
                folder, report=asked["report"], vector=asked["vector"], beside=[Path(one) for one in asked["beside"]]
            )
    except SojournError as error:
        print(json.dumps({"status": error.status, "message": str(error)}))
    except OSError as error:
        if error.errno not in DENIED:
            raise
        print(json.dumps({"errno": error.errno, "filename": error.filename and os.fsdecode(error.filename)}))


def _end_with(parent: int) -> None:
    """Have this program killed when the thread that started it ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno() or errno.EINVAL, "prctl (PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main()
