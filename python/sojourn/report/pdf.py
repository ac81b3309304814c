"""A report as a PDF: its page printed by the Chromium that is installed. Fetches none, and loads nothing.

The page prints itself on A4, in the light scheme, with its figures drawn.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from sojourn.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_SECONDS = 180
DRAWN_MS = 60_000
"""Of the page's own time, which passes as fast as the page computes: every figure is drawn within it."""


def print_pdf(page: Path) -> Path:
    """Print a report's page beside itself, and return the PDF's path."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise MachineError("no Chromium here to print the report with: install one (Debian: apt-get install chromium)")
    pdf = page.with_suffix(".pdf").with_stem("report")
    pdf.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="sojourn-print-") as profile:
        command = [browser, *options(profile), f"--print-to-pdf={pdf.resolve()}", page.resolve().as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise MachineError(f"{browser} did not print the report within {PATIENCE_SECONDS} s") from error
    if done.returncode != 0 or not pdf.exists():
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MachineError(f"{browser} did not print the report (status {done.returncode}): {last}")
    return pdf


def options(profile: str) -> list[str]:
    """How Chromium prints and does nothing else; as root it runs only without its sandbox."""
    quiet = ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    printing = ["--no-pdf-header-footer", f"--virtual-time-budget={DRAWN_MS}", f"--user-data-dir={profile}"]
    return [*quiet, *printing, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
