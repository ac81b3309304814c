"""The doctor: tries a machine for real, takes in what the instrument says, and decides the status."""

from __future__ import annotations

import io
import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from sojourn.bed.doctor import examine, print_examination

if TYPE_CHECKING:
    from pathlib import Path

# Answers as the instrument does: one finding of its own, and one block of a floor.
FAKE_INSTRUMENT = """#!/bin/sh
case "$1" in
doctor) echo '{"checks":[{"name":"hardware timestamps","status":"limited","found":"no","fix":"another NIC"}]}' ;;
probe) cat > /dev/null
    echo '{"event":"ready"}'
    echo '{"event":"block","block":0,"rtt":{"min_ns":5000,"p50_ns":7000}}' ;;
esac
"""


@pytest.fixture
def instrument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the instrument, since only what it says is of interest here."""
    path = tmp_path / "instrument"
    path.write_text(FAKE_INSTRUMENT)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    monkeypatch.setenv("SOJOURN_INSTRUMENT", str(path))
    return path


def test_doctor_passes_on_a_machine_that_can_build_a_bed(instrument: Path) -> None:
    examination = examine()
    found = {check["name"]: check for check in examination["checks"]}
    assert examination["status"] == 0, examination["sentence"]
    assert found["a bed with a bridge"]["status"] == "ok"
    assert found["floor of an empty link"]["found"] == "round trip 5.0 µs at least, 7.0 µs median"
    assert found["hardware timestamps"]["fix"] == "another NIC"
    assert found["network namespaces"]["status"] == ("ok" if os.geteuid() == 0 else "limited")
    assert found["sojourn-instrument"]["found"] == str(instrument)
    json.dumps(examination)


def test_without_the_instrument_the_status_is_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOJOURN_INSTRUMENT", "/nonexistent")
    examination = examine()
    assert examination["status"] == 3
    assert "sojourn-instrument" in examination["sentence"]
    lacking = [check for check in examination["checks"] if check["needed"] and check["status"] == "missing"]
    assert all(check["fix"] for check in lacking)


def test_the_table_shows_every_check_and_ends_with_the_sentence(instrument: Path) -> None:
    assert instrument.exists()
    examination = examine()
    page = io.StringIO()
    print_examination(examination, Console(file=page, width=200))
    lines = page.getvalue().splitlines()
    assert lines[-1] == examination["sentence"]
    assert all(any(check["name"] in line for line in lines) for check in examination["checks"])
