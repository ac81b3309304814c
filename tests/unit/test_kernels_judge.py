"""The judge of guests with other kernels: what it compares with on this machine, and kernels that were not booted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kernels import datagrams, judge

if TYPE_CHECKING:
    import pytest

INSTRUMENT = """#!/bin/sh
case $1 in schema) echo tables ;; esac
"""


def test_instrument_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/instrument"
    program.parent.mkdir()
    program.write_text(INSTRUMENT)
    program.chmod(0o755)
    guest = judge.Guest("6.1", tmp_path / "6.1")
    there = guest.out / "computed"
    there.mkdir(parents=True)
    (guest.out / "computed.status").write_text("0")
    datagrams.write(guest.out / "in.pcap")
    argv = ["sh", str(Path(judge.__file__).with_name("computed")), str(program), "../in.pcap"]
    subprocess.run(argv, cwd=there, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOJOURN_INSTRUMENT", "bin/instrument")
    assert judge.judged(guest, "computed alike", judge.computed) == ("6 files", "")
    (there / "schema").write_text("others")
    assert judge.judged(guest, "computed alike", judge.computed)[0] == "FAILED"


def test_kernels_that_were_not_booted_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge.main([str(tmp_path), "6.1", "--not-run", "6.1-arm64"]) == 0
    told = capsys.readouterr()
    assert "\n6.1-arm64           not run\n" in told.out
    [booted, left_out] = json.loads((tmp_path / "judged.json").read_text())["kernels"]
    assert (booted["kernel"], left_out) == ("6.1", {"kernel": "6.1-arm64"})
    assert judge.main([str(tmp_path), "6.1", "--not-run"]) == 0
    assert "not run" not in capsys.readouterr().out
