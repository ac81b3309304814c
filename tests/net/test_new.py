"""A package that `sojourn new` writes, really installed: its tests pass as it is, and what is taken is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.in_process import sojourn


@pytest.mark.parametrize("kind", ["device", "method"])
def test_a_new_packages_own_tests_pass_once_it_is_installed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = sojourn("new", kind, "patch")
    assert done.returncode == 0, done.stderr
    site, uv = tmp_path / "site", str(Path(sys.executable).with_name("uv"))
    how = ["--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([uv, "pip", "install", "--quiet", *how, "--target", str(site), "./patch"], check=True)
    assert list(site.glob("sojourn_patch-0.1.0.dist-info/entry_points.txt"))
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "patch"]
    said = subprocess.run(
        tests, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert " passed" in said.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("stage", "patch"), "expected device or method"),
        (("device", "bridge"), "there is a device 'bridge' already"),
        (("method", "pairs"), "there is a method 'pairs' already"),
        (("device", "Patch-9"), "expected a small letter"),
        (("device", "there"), "is there already"),
    ],
)
def test_existing_or_invalid_names_are_refused(
    words: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    done = sojourn("new", *words)
    assert done.returncode == 2
    assert why in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
