"""A device of another distribution, really installed: measured on real frames up to its report, then removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

DEVICE = """
from sojourn.devices import Ink, Mode, commands
from sojourn.devices.wire import redirect

TRACE = {trace!r}


def patch(box):
    return [*redirect(box), *commands("sh", f"echo built {{box.left.dev}} >> {{TRACE}}")]


DEVICE = Mode(
    name="patch",
    title="The patch panel",
    box="patch panel",
    ink=Ink("patch", "#123456", "#654321", (1, 0), "square"),
    fix="modprobe act_mirred",
    tools={{"tc": "iproute2"}},
    join=patch,
    remove=lambda box: commands("sh", f"echo removed {{box.left.dev}} >> {{TRACE}}"),
)
"""

PLAN = """
[study]
name = "patched"
[bed]
devices = ["patch"]
[probe]
probe = ["icmp"]
icmp_bytes = [64]
interval = ["1 ms"]
[pairs]
rounds = 6
probes_per_block = 24
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder into which a wheel with the device was installed."""
    wheel = tmp_path / "patch_device-1.0-py3-none-any.whl"
    about = "patch_device-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("patch_device.py", DEVICE.format(trace=str(tmp_path / "trace")))
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: patch-device\nVersion: 1.0\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/entry_points.txt", "[sojourn.devices]\npatch = patch_device:DEVICE\n")
        archive.writestr(f"{about}/RECORD", "")
    target = tmp_path / "site"
    uv = str(Path(sys.executable).with_name("uv"))
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([*install, "--python", sys.executable], check=True)
    return target


def sojourn(site: Path, *words: str, cwd: Path) -> str:
    """A run of the command line that sees what was installed there."""
    env = os.environ | {"PYTHONPATH": str(site)}
    argv = [str(Path(sys.executable).with_name("sojourn")), *words]
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 4), done.stderr
    return done.stdout + done.stderr


def test_an_installed_package_adds_a_device(site: Path, tmp_path: Path) -> None:
    (tmp_path / "patched.toml").write_text(PLAN)
    sojourn(site, "run", "patched.toml", "--out", "run", cwd=tmp_path)
    verdict = json.loads((tmp_path / "run/analysis/verdict.json").read_text())
    assert "The patch panel adds" in verdict["sentence"]
    bed = json.loads((tmp_path / "run/bed.json").read_text())
    assert "[patch panel]" in bed["drawing"]["text"]
    page = (tmp_path / "run/report/index.html").read_text()
    assert "--device-patch: #123456" in page
    assert (tmp_path / "trace").read_text().split() == ["built", "d-patch-1l", "removed", "d-patch-1l"]
