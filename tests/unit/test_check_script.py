"""`make check` says where it cannot look for advisories, and fails where it finds one: with stubs of its programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).resolve().parents[2] / "scripts/check.sh").read_text()
DENY = '[ "$2" = --version ] && exit 0; '
FOUND = "echo 'RUSTSEC-2026-0001: a crate of ours'; exit 1"


def checked(
    folder: Path,
    call: str,
    *,
    uv: str = "exit 0",
    cargo: str = "exit 0",
    python: str = "exit 0",
    databases: bool = False,
) -> str:
    """What one of the script's functions says in an empty folder, and what failed of that."""
    functions = SCRIPT[SCRIPT.index("step() {") : SCRIPT.index("step 'Cargo.lock is current'")]
    for path, does in ((".venv/bin/uv", uv), (".venv/bin/python", python), ("bin/cargo", cargo)):
        stub = folder / path
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(f"#!/bin/sh\n{does}\n")
        stub.chmod(0o755)
    if databases:
        (folder / "home/advisory-dbs").mkdir(parents=True)
    env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "CARGO_HOME": str(folder / "home")}
    script = f'bin=.venv/bin; failed=()\n{functions}\n{call} Advisories\necho "failed: ${{failed[*]}}"'
    done = subprocess.run(["bash", "-uc", script], cwd=folder, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("uv", "said", "failed"),
    [
        ("exit 0", "ok", ""),
        ("echo 'error: Request failed after 3 retries' >&2; exit 2", "SKIPPED: the database of advisories (OSV)", ""),
        ("echo 'polars 1.0: GHSA-1, a hole'; exit 1", "FAILED\npolars 1.0: GHSA-1, a hole", "Advisories"),
        ("echo 'error: the lock is damaged' >&2; exit 2", "FAILED\nerror: the lock is damaged", "Advisories"),
    ],
)
def test_advisories_on_python_libraries_are_skipped_only_offline(
    uv: str, said: str, failed: str, tmp_path: Path
) -> None:
    told = checked(tmp_path, "python_advisories", uv=uv)
    assert told.startswith(f"{'Advisories':38}{said}")
    assert told.endswith(f"failed: {failed}\n")


@pytest.mark.parametrize(
    ("cargo", "databases", "python", "said", "failed"),
    [
        ("exit 101", True, "exit 0", "ok\n", ""),
        ("exit 101", False, "echo 'OSV gives no answer'; exit 3", "SKIPPED: OSV gives no answer\n", ""),
        ("exit 101", True, FOUND, "FAILED\nRUSTSEC-2026-0001: a crate of ours\n", "Advisories"),
        ("exit 101", True, "exit 2", "FAILED\n\n", "Advisories"),
        (f"{DENY}exit 9", False, "exit 0", "ok\n", ""),
        (f"{DENY}exit 0", True, "exit 9", "ok\n", ""),
        (f"{DENY}{FOUND}", True, "exit 9", "FAILED\nRUSTSEC-2026-0001: a crate of ours\n", "Advisories"),
    ],
)
def test_advisories_on_crates_come_from_cargo_deny_or_osv_and_are_skipped_only_without_an_answer(
    cargo: str, databases: bool, python: str, said: str, failed: str, tmp_path: Path
) -> None:
    told = checked(tmp_path, "rust_advisories", cargo=cargo, databases=databases, python=python)
    assert told.startswith(f"{'Advisories':38}{said}")
    assert told.endswith(f"failed: {failed}\n")


@pytest.mark.parametrize(
    ("python", "said", "failed"),
    [
        ("exit 0", "ok\n", ""),
        ("echo 'proof-net of 2026-11-28 failed'", "NOTE: proof-net of 2026-11-28 failed\n", ""),
        ("echo 'no such file'; exit 1", "FAILED\nno such file\n", "Advisories"),
    ],
)
def test_failed_suites_of_the_proof_are_said_and_fail_nothing(
    python: str, said: str, failed: str, tmp_path: Path
) -> None:
    told = checked(tmp_path, "failed_suites", python=python)
    assert told == f"{'Advisories':38}{said}failed: {failed}\n"
    assert "\nfailed_suites 'Suites of the proof page'\n" in SCRIPT


def test_both_locks_are_checked() -> None:
    assert "\npython_advisories 'Advisories on uv.lock'\nrust_advisories 'Advisories on Cargo.lock'\n" in SCRIPT
