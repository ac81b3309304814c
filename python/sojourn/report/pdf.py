"""A report as a PDF: its page printed by the Chromium that is installed. Fetches none, and loads nothing.

The page prints itself on A4, in the light scheme, with its figures drawn. Root lets another user print a copy: with all
rights, a browser runs without its sandbox alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sojourn.caller import Caller, sudo_caller
from sojourn.errors import MachineError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_SECONDS = 180
DRAWN_MS = 60_000
"""Of the page's own time, which passes as fast as the page computes: every figure is drawn within it."""
NOBODY = 65534
"""User and group without rights, where nobody called root by sudo."""


def print_pdf(page: Path) -> Path:
    """Print a report's page beside itself, and return the PDF's path."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise MachineError("no Chromium here to print the report with: install one (Debian: apt-get install chromium)")
    pdf = page.with_suffix(".pdf").with_stem("report")
    pdf.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="sojourn-print-") as scratch:
        if os.geteuid() == 0:
            _print_as(sudo_caller() or Caller(NOBODY, NOBODY), browser, page, Path(scratch))
            # What that user left there may be a link to a file of root's.
            pdf.write_bytes(_bytes_of(Path(scratch, "report.pdf")))
            shutil.copymode(page, pdf)
        else:
            _print([browser, *options(scratch, page, pdf)], pdf)
    return pdf


def _print_as(user: Caller, browser: str, page: Path, scratch: Path) -> None:
    """Print a copy of the page that the user may read, in a folder of that user."""
    copy, pdf = scratch / "index.html", scratch / "report.pdf"
    shutil.copyfile(page, copy)
    for path in (scratch, copy):
        os.chown(path, *user)
    command = user.command([browser, *options(str(scratch), copy, pdf)])
    environment = user.environment(os.environ) | {"HOME": str(scratch)}
    try:
        _print(command, pdf, environment)
    except MachineError as error:
        # Kernels and containers may refuse plain users the namespaces that a sandbox is made of.
        if "sandbox" not in str(error):
            raise
        _print([*command, "--no-sandbox"], pdf, environment)


def _bytes_of(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read()


def _print(command: list[str], pdf: Path, environment: dict[str, str] | None = None) -> None:
    browser = next(word for word in command if Path(word).name in BROWSERS)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"{browser} did not print the report within {PATIENCE_SECONDS} s") from error
    if done.returncode != 0 or not pdf.exists():
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        why = next((line for line in lines if "sandbox" in line.lower()), lines[-1])
        raise MachineError(f"{browser} did not print the report (status {done.returncode}): {why}")


def options(profile: str, page: Path, pdf: Path) -> list[str]:
    """How Chromium prints and does nothing else."""
    quiet = ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    printing = ["--no-pdf-header-footer", f"--virtual-time-budget={DRAWN_MS}", f"--user-data-dir={profile}"]
    return [*quiet, *printing, f"--print-to-pdf={pdf.resolve()}", page.resolve().as_uri()]
