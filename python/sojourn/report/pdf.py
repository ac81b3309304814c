"""Print a report's page as PDF with an installed Chromium. Downloads none; the page loads nothing.

The page prints itself on A4, in the light scheme, with its figures drawn. Root has another user print a copy, because
as root a browser runs only without its sandbox.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from sojourn.caller import Caller, sudo_caller
from sojourn.errors import MachineError
from sojourn.records.scratch import SHARED, scratch
from sojourn.records.whole_file import write_whole

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_SECONDS = 180
DRAWN_MS = 60_000
"""In the page's virtual time, which passes as fast as the page computes: every figure is drawn within it."""
MOST_BYTES = 1 << 30
NOBODY = 65534
"""User and group without rights, used if nobody called root by sudo."""

NO_SANDBOX = re.compile(
    "No usable sandbox|without --no-sandbox is not supported|SUID sandbox helper binary was found|"
    r"Failed to move to new namespace|FATAL:(?:\S*/)?credentials\.cc"
)
"""How Chromium says that it cannot have its sandbox (content/browser/zygote_host, sandbox/linux). Others name it, too.

A warning of sandbox_linux.cc comes with any failure.
"""


class NoSandboxError(MachineError):
    """The browser cannot have its sandbox."""


def print_pdf(page: Path) -> Path:
    """Print a report's page beside itself, and return the PDF's path."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise MachineError("no Chromium here to print the report with: install one (Debian: apt-get install chromium)")
    pdf = page.with_suffix(".pdf").with_stem("report")
    pdf.unlink(missing_ok=True)
    with scratch("print", SHARED if os.geteuid() == 0 else None) as folder:
        if os.geteuid() == 0:
            theirs = folder / "theirs"  # the folder itself stays root's, so that after a kill it is known as such
            theirs.mkdir(mode=0o700)
            folder.chmod(0o711)
            write_whole(pdf, _printed_as(sudo_caller() or Caller(NOBODY, NOBODY), browser, page, theirs))
        else:
            _print([browser, *options(str(folder), page, pdf)], pdf)
    return pdf


def _printed_as(user: Caller, browser: str, page: Path, scratch: Path) -> bytes:
    """Return a PDF of a copy of the page, printed by another user in a folder of that user."""
    copy, pdf = scratch / "index.html", scratch / "report.pdf"
    shutil.copyfile(page, copy)
    command = [browser, *options(str(scratch), copy, pdf)]
    if _can_become(user):
        os.chown(copy, *user, follow_symlinks=False)
        os.chown(scratch, *user, follow_symlinks=False)
        environment = user.environment(os.environ) | {"HOME": str(scratch)}
        try:
            _print(user.command(command), pdf, environment)
        except NoSandboxError:
            if pdf.exists() or user.uid == 0:
                raise
            # Kernels and containers may refuse the namespaces of a sandbox to unprivileged users.
            _print([*user.command(command), "--no-sandbox"], pdf, environment)
    else:
        _print([*command, "--no-sandbox"], pdf)
    return _bytes_of(pdf)


def _can_become(user: Caller) -> bool:
    """Return whether programs can run as this user: some containers have only root."""
    try:
        return subprocess.run(user.command(["true"]), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _bytes_of(path: Path) -> bytes:
    """Read a file that another user wrote; a link (perhaps to a file of root's) or a special file is refused."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise MachineError("the browser printed no ordinary file")
        return file.read(MOST_BYTES)


def _print(command: list[str], pdf: Path, environment: dict[str, str] | None = None) -> None:
    browser = next(word for word in command if Path(word).name in BROWSERS)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE_SECONDS,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"{browser} did not print the report within {PATIENCE_SECONDS} s") from error
    if done.returncode != 0 or not pdf.exists():
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        refusal = next(filter(NO_SANDBOX.search, lines), None)
        why = f"{browser} did not print the report (status {done.returncode}): {refusal or lines[-1]}"
        raise MachineError(why) if refusal is None else NoSandboxError(why)


def options(profile: str, page: Path, pdf: Path) -> list[str]:
    """Return the options with which Chromium prints and does nothing else."""
    quiet = ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    printing = ["--no-pdf-header-footer", f"--virtual-time-budget={DRAWN_MS}", f"--user-data-dir={profile}"]
    return [*quiet, *printing, f"--print-to-pdf={pdf.resolve()}", page.resolve().as_uri()]
