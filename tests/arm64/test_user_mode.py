"""The instrument for arm64 under QEMU's user mode, its wheel, and the unit tests of some crates.

QEMU's user mode hands system calls to this machine's kernel, and knows no BPF and no filters of system calls. So the
instrument measures nothing there: what it computes and measures is tried in a guest with a kernel of its own
(`make kernels`: 6.1-arm64).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sojourn.bed.copies import architecture_of
from sojourn.binary import find_instrument
from sojourn.version import __version__

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/arm64.sh"
BINARY = ROOT / ".venv/bin/sojourn-instrument-aarch64"
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")

pytestmark = [
    pytest.mark.proof,
    pytest.mark.xdist_group("arm64"),  # all of them build in one folder
    pytest.mark.may_skip,  # where QEMU, or what compiles for arm64, cannot be had
    pytest.mark.skipif(os.uname().machine == "aarch64", reason="this machine is arm64 itself"),
]


@pytest.fixture(scope="module")
def emulator() -> str:
    found = next(filter(None, map(shutil.which, EMULATORS)), None)
    if found is None:
        pytest.skip("no QEMU that runs programs for arm64: apt-get install qemu-user")
    return found


@pytest.fixture(scope="module")
def built() -> Path:
    """The instrument for arm64, of these sources."""
    done = subprocess.run([SCRIPT, "build"], capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-2000:]
    return BINARY


def test_arm64_instrument_runs_and_prints_its_version(emulator: str, built: Path) -> None:
    assert architecture_of(built.read_bytes()) == "aarch64"
    done = subprocess.run([emulator, built, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sojourn-instrument {__version__}\n"


def test_arm64_instrument_has_the_same_tables_and_commands(emulator: str, built: Path) -> None:
    for words in (["schema"], ["commands"]):
        own = subprocess.run([find_instrument(), *words], capture_output=True, check=True).stdout
        assert own
        assert subprocess.run([emulator, built, *words], capture_output=True, check=True).stdout == own, words


def test_without_seccomp_the_instrument_refuses_to_measure(emulator: str, built: Path) -> None:
    """QEMU's user mode has none (nor timestamps, without which a probe opens no socket): it does not go on."""
    words = ["tcp", "receive", "127.0.0.1:0"]
    done = subprocess.run([emulator, built, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stdout
    assert "seccomp" in done.stderr
    assert done.stderr.count("\n") == 1


def test_unit_tests_of_the_crates_pass_on_arm64(emulator: str, built: Path) -> None:
    done = subprocess.run([SCRIPT, "test"], capture_output=True, text=True, check=False, timeout=5400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert done.stdout.count("test result: ok. ") >= 5, done.stdout[-3000:]


def test_make_dist_builds_a_wheel_for_arm64(built: Path, tmp_path: Path) -> None:
    """Its tag, its binary and its bill of materials are of arm64."""
    argv = [sys.executable, "-m", "scripts.make_dist", "--no-deb", "--out", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=3600)
    [wheel] = tmp_path.glob("*aarch64.whl")
    assert wheel.name == f"sojourn-{__version__}-py3-none-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        [program] = [name for name in names if name.endswith("/scripts/sojourn-instrument")]
        [bill] = [name for name in names if name.endswith("/sboms/sojourn.cdx.json")]
        [tags] = [name for name in names if name.endswith(".dist-info/WHEEL")]
        assert packed.read(program) == built.read_bytes()
        assert "Tag: py3-none-manylinux_2_28_aarch64\n" in packed.read(tags).decode()
        assert {one["name"] for one in json.loads(packed.read(bill))["components"]} >= {
            "libbpf-sys",
            "arrow-ipc",
            "polars",
        }
