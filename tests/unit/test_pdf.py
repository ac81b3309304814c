"""Printing a report where no Chromium is, and where it fails: one sentence, status 3. tests/browser prints one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sojourn.caller import Caller
from sojourn.errors import MachineError
from sojourn.report import pdf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def test_missing_browser_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no Chromium here") as said:
        pdf.print_pdf(tmp_path / "index.html")
    assert said.value.status == 3


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a browser is looked for first, by whoever prints."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("PATH", f"{name}:/bin:/usr/bin")
        (folder / "chromium").touch(mode=0o755)
        (folder / "chromium").chmod(0o755)
        yield folder / "chromium"


def test_failing_browser_is_quoted_and_an_older_pdf_removed(browser: Path, tmp_path: Path) -> None:
    browser.write_text("#!/bin/sh\necho no display >&2\nexit 7\n")
    (tmp_path / "report.pdf").write_text("of the run before")
    (tmp_path / "index.html").touch()
    with pytest.raises(MachineError, match=r"did not print the report \(status 7\): no display"):
        pdf.print_pdf(tmp_path / "index.html")
    assert not (tmp_path / "report.pdf").exists()


FAKE = """#!/bin/sh
for word in "$@"; do case $word in --print-to-pdf=*) pdf=${word#*=} ;; --no-sandbox) off=1 ;; esac; done
if [ -n "$REFUSES" ] && [ -z "$off" ]; then echo "No usable sandbox!" >&2; exit 1; fi
echo "%PDF-1.4 by $(id -u) ${off:-0} $(stat -c %u%a "${pdf%/*}/..")" >"$pdf"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which prints as somebody else")
@pytest.mark.parametrize("refuses", ["", "1"])
def test_root_prints_as_another_user_in_a_sandbox_if_available(
    refuses: str, browser: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.write_text(FAKE)
    (tmp_path / "index.html").touch(mode=0o600)
    for name, value in {"REFUSES": refuses, "SUDO_UID": "4711", "SUDO_GID": "4711"}.items():
        monkeypatch.setenv(name, value)
    printed = pdf.print_pdf(tmp_path / "index.html")
    assert printed.read_text() == f"%PDF-1.4 by 4711 {refuses or 0} 0711\n", (
        "`bed clean` finds the folder: it is root's"
    )
    assert printed.stat().st_mode & 0o777 == 0o600


class Same(Caller):
    """A user whose programs are run by this one."""

    def command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)


UNWILLING = """#!/bin/sh
for word in "$@"; do case $word in --print-to-pdf=*) pdf=${word#*=} ;; --no-sandbox) off=1 ;; esac; done
echo run >>"$RUNS"
[ -n "$off" ] || { echo "$SAID" >&2; exit 1; }
echo "%PDF-1.4" >"$pdf"
"""


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ("[1014/125700.263799:FATAL:zygote_host_impl_linux.cc(127)] No usable sandbox! Update your kernel", 2),
        (
            "[0320/1339.82:ERROR:zygote_host_impl_linux.cc(90)] Running as root without --no-sandbox is not supported.",
            2,
        ),
        ("Failed to move to new namespace: PID namespaces supported, but failed: errno = Operation not permitted", 2),
        ("[1:1:FATAL:setuid_sandbox_host.cc(157)] The SUID sandbox helper binary was found, but is not configured", 2),
        ("[9:9:FATAL:sandbox/linux/services/credentials.cc:131] Check failed: . : Permission denied (13)", 2),
        ("[WARNING:sandbox/policy/linux/sandbox_linux.cc(430)] InitializeSandbox() called with threads\nno display", 1),
        ("no display", 1),
        ("", 1),
    ],
    ids=map(str, range(8)),
)
def test_browser_prints_without_its_sandbox_only_if_it_cannot_have_it(
    said: str, runs: int, browser: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.write_text(UNWILLING)
    (tmp_path / "page.html").touch()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("SAID", said)
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(os, "chown", lambda *_, **__: None)

    def printed() -> bytes:
        return pdf._printed_as(Same(4711, 4711), str(browser), tmp_path / "page.html", tmp_path / "scratch")

    if runs == 2:
        assert printed() == b"%PDF-1.4\n"
    else:
        with pytest.raises(MachineError) as refused:
            printed()
        assert str(refused.value).endswith(said.splitlines()[-1] if said else "it said nothing")
    assert (tmp_path / "runs").read_text() == "run\n" * runs


def test_pdf_of_another_user_above_the_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "report.pdf"
    file.write_bytes(b"%PDF")
    assert pdf._bytes_of(file) == b"%PDF"
    os.truncate(file, pdf.MOST_BYTES + 1)
    with pytest.raises(MachineError, match="no ordinary file"):
        pdf._bytes_of(file)
