"""The units of systemd that the package ships are well-formed, and exposed by at most 2.5 of 10 by systemd's count."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "packaging/systemd").glob("*.service"))
MOST_EXPOSED = 25
"""Tenths of systemd's score, from 0 (safe) to 100."""


def systemd_analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """What it says; a machine without it is skipped, but not in CI, where set-up installs it."""
    if shutil.which("systemd-analyze") is None:
        assert "CI" not in os.environ, "CI must have systemd-analyze (scripts/setup.sh installs it)"
        pytest.skip("systemd-analyze is not here")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


def test_each_service_has_a_systemd_unit_and_the_wheel_contains_it() -> None:
    assert [unit.name for unit in UNITS] == [
        "sojourn-emulator@.service",
        "sojourn-responder.service",
        "sojourn-tcplog.service",
    ]
    shared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert shared["shared-data"] == {"packaging/systemd": "lib/systemd/system"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_unit_has_a_low_exposure_level(unit: Path) -> None:
    said = systemd_analyze("security", "--no-pager", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit))
    assert said.returncode == 0, [*said.stdout.splitlines()[-1:], said.stderr]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_unit_has_a_memory_limit(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    limits = {name: value for name, _, value in (line.partition("=") for line in lines)}
    assert limits["MemoryMax"] in {"256M", "1G"}
    assert int(limits["TasksMax"]) <= 16
    assert int(limits["LimitNOFILE"]) <= 256
    assert lines[lines.index(f"MemoryMax={limits['MemoryMax']}") - 1].startswith("# "), "why so much"


def test_log_of_the_whole_machine_has_a_size_limit_that_its_configuration_replaces() -> None:
    """systemd gives `$LIMIT` as words of its own, and a file of EnvironmentFile overrides Environment."""
    lines = (ROOT / "packaging/systemd/sojourn-tcplog.service").read_text().splitlines()
    [program] = [line for line in lines if line.startswith("ExecStart=")]
    assert program.endswith(" $LIMIT $OPTIONS")
    assert 'Environment="LIMIT=--log-limit 16GiB"' in lines


def test_unprotected_unit_fails_the_exposure_check(tmp_path: Path) -> None:
    bare = tmp_path / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n")
    said = systemd_analyze("security", "--no-pager", "--offline=true", f"--threshold={MOST_EXPOSED}", str(bare))
    assert said.returncode != 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_unit_is_valid(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@", "@one")
    copy.write_text(unit.read_text().replace("ExecStart=sojourn-instrument", "ExecStart=/bin/true"))
    said = systemd_analyze("verify", "--man=no", str(copy))
    assert (said.returncode, [line for line in said.stderr.splitlines() if copy.name in line]) == (0, [])
