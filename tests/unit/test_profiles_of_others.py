"""Files of pipes that another distribution brings, installed for a test as pip would leave it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "from sojourn.cli import main; main()"
PROFILE = "bw 1Mbit/s\ndelay prob\n1 0\n5 1\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder to work in, and a distribution with files of pipes; one of its entry points names no package."""
    package, about = tmp_path / "lib/their_media", tmp_path / "lib/media-1.0.dist-info"
    package.mkdir(parents=True)
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: media\nVersion: 1.0\n")
    entries = "wlan = their_media\nlte = nowhere.at_all\n"
    (about / "entry_points.txt").write_text(f"[sojourn.profiles]\n{entries}")
    (package / "__init__.py").write_text("raise SystemExit('this package is not to be imported')\n")
    (package / "11g.profile").write_text(PROFILE)
    (tmp_path / "here").mkdir()
    return tmp_path


def explain(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", MAIN, "emulate", "explain", "--forward", words, "--json"]
    environment = os.environ | {"PYTHONPATH": str(folder / "lib")}
    return subprocess.run(argv, env=environment, cwd=folder / "here", text=True, capture_output=True, check=False)


def rate_of(done: subprocess.CompletedProcess[str]) -> object:
    assert done.returncode == 0, done.stderr
    (pipe,) = (one for one in json.loads(done.stdout)["config"]["pipes"] if one["link"]["profile"])
    return pipe["link"]["rate_bps"]


def test_pipe_can_use_a_profile_of_another_package(installed: Path) -> None:
    assert rate_of(explain(installed, "profile wlan/11g.profile")) == 1_000_000


def test_local_file_takes_precedence_over_a_packaged_profile(installed: Path) -> None:
    (installed / "here/wlan").mkdir()
    (installed / "here/wlan/11g.profile").write_text(PROFILE.replace("1Mbit/s", "2Mbit/s"))
    assert rate_of(explain(installed, "profile wlan/11g.profile")) == 2_000_000


@pytest.mark.parametrize("file", ["wlan/11n.profile", "lte/edge.profile", "11g.profile"])
def test_error_names_the_missing_profile(installed: Path, file: str) -> None:
    done = explain(installed, f"profile {file}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file.rpartition('/')[2]} cannot be read" in done.stderr
