"""`sojourn tcplog run`: the instrument logs, as a child of this process, which lists the flows when it has ended.

Signals are passed on to the child, and its end is this process's. Nothing is listed if the request was refused, if JSON
or help is requested, or if the log is so long that reading it would take long; the log itself is not affected. Files of
sudo's caller are read as that user.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM)
MOST_RECORDS = 2_000_000
"""A longer log is not read at its end, because the user's shell would have to wait."""

MOST_LINES = 20


def run_log(words: Sequence[str]) -> NoReturn:
    """Log; `words` are the arguments of `tcplog run`."""
    from sojourn.cli.become import become_instrument
    from sojourn.instruments import find_instrument

    ours = list(words[: words.index("--")]) if "--" in words else list(words)
    out = folder_of(ours)
    if out is None or {"--json", "--help", "-h"}.intersection(ours):
        become_instrument(["tcplog", "run", *words])
    before = footer_of(out)
    status = child_status(find_instrument(), ["sojourn", "tcplog", "run", *words])
    if (footer := footer_of(out)) is not None and footer != before:
        list_flows(out, footer)
    if status < 0:
        with suppress(OSError):  # SIGKILL cannot have one
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def folder_of(words: Sequence[str]) -> Path | None:
    """Return the folder of `--out`."""
    for place, word in enumerate(words):
        if word.startswith("--out="):
            return Path(word.removeprefix("--out="))
        if word == "--out" and place + 1 < len(words):
            return Path(words[place + 1])
    return None


def child_status(program: str, argv: list[str]) -> int:
    """Run a program with our terminal, input, output and signals; it ends in order if this process is killed."""
    kernel = ctypes.CDLL(None, use_errno=True)
    child: list[subprocess.Popen[bytes]] = []
    waiting: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if child:
            child[0].send_signal(number)
        else:
            waiting.append(number)

    for number in PASSED_ON:
        # A script's `&` makes its programs ignore SIGINT; the instrument must end at one even so.
        if number in ENDING or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    # All descriptors of this process are the command's as well.
    child.append(
        subprocess.Popen(
            argv,
            executable=program,
            close_fds=False,
            preexec_fn=lambda: kernel.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - there are no threads
        )
    )
    for early in waiting:
        child[0].send_signal(early)
    status = child[0].wait()
    for number in PASSED_ON:
        if signal.getsignal(number) is pass_on:  # what follows ends at the first signal
            signal.signal(number, signal.SIG_DFL)
    return status


def footer_of(out: Path) -> bytes | None:
    """Return the footer as it is; None if it does not exist, is not readable, too long, a link or no ordinary file."""
    from sojourn.errors import RequestError
    from sojourn.records.decode import octets_of

    try:
        return octets_of(out / "footer.json", follow=False)
    except (OSError, RequestError):
        return None


def list_flows(out: Path, footer: bytes) -> None:
    """Print the row of `tcplog summary` for each flow, on standard error, after the instrument's output."""
    try:
        records = json.loads(footer).get("records")
        if not records:
            return
        if records > MOST_RECORDS:
            print(f"the flows one by one: sojourn tcplog summary {out}", file=sys.stderr)
            return
        # Import first: that user may not be able to read the libraries.
        from sojourn.export.log import TcpLog
        from sojourn.export.summary import summarised
        from sojourn.export.summary_text import shortened

        become_owner(out)
        log = TcpLog.open(out)
        print(shortened(summarised(log), log, MOST_LINES), file=sys.stderr)
    except Exception as error:
        print(f"sojourn: the flows are not listed: {' '.join(str(error).split())}", file=sys.stderr)


def become_owner(out: Path) -> None:
    """Become the user who owns the log: root reads no files that others may have put there."""
    found = out.stat()
    if os.geteuid() == 0 and found.st_uid != 0:
        os.setgroups([])
        os.setgid(found.st_gid)
        os.setuid(found.st_uid)
