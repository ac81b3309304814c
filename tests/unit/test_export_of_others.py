"""`sojourn export --to NAME`, where NAME is another distribution's: installed for a test as pip would leave it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden/bridge-latency.tar.xz"
MAIN = "from sojourn.cli import main; main()"
MODULE = """
import sojourn

def lines(folder):
    run = sojourn.open(folder)
    found = run.headline
    return f"{run.verdict} {found.value:.0f} {found.low:.0f} {found.high:.0f} {found.unit}\\n"

def broken(folder):
    raise KeyError("no such thing")

def refused(folder):
    raise sojourn.RequestError("this format takes streams alone")

def nothing(folder):
    return None
"""
NAMES = ("lines", "broken", "refused", "nothing")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and beside it a distribution with formats, one of which bears the name of one of ours."""
    folder = tmp_path_factory.mktemp("others")
    about = folder / "lib/formats-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: formats\nVersion: 1.0\n")
    values = {
        **{name: f"their_formats:{name}" for name in NAMES},
        "hdr": "their_formats:lines",
        "gone": "nowhere:at_all",
    }
    entries = "".join(f"{name} = {value}\n" for name, value in values.items())
    (about / "entry_points.txt").write_text(f"[sojourn.exports]\n{entries}")
    (folder / "lib/their_formats.py").write_text(MODULE)
    with tarfile.open(GOLDEN) as packed:
        packed.extractall(folder, filter="data")
    return folder


def export(folder: Path, to: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", MAIN, "export", "bridge-latency", "--to", to]
    environment = os.environ | {"PYTHONPATH": str(folder / "lib")}
    return subprocess.run(argv, env=environment, cwd=folder, text=True, capture_output=True, check=False)


def test_export_format_of_another_package_receives_the_run(installed: Path) -> None:
    done = export(installed, "lines")
    assert (done.returncode, done.stderr) == (0, "")
    verdict, value, low, high, unit = done.stdout.split()
    assert (verdict, unit) == ("trusted", "ns")
    assert 0 < float(low) < float(value) < float(high)


def test_package_cannot_replace_a_built_in_format(installed: Path) -> None:
    assert export(installed, "hdr").stdout.startswith("#[Histogram log format version 1.3]")


@pytest.mark.parametrize(
    ("to", "status", "said"),
    [
        ("broken", 3, "the entry point broken = their_formats:broken of sojourn.exports failed: KeyError: 'no such"),
        ("gone", 3, "the entry point gone = nowhere:at_all of sojourn.exports failed: ModuleNotFoundError:"),
        ("nothing", 3, "returned no text, but NoneType"),
        ("refused", 2, "this format takes streams alone"),
        (
            "linse",
            2,
            "hdr or latex or broken or gone or lines or nothing or refused (did you mean lines?)",
        ),
    ],
)
def test_errors_are_one_sentence(installed: Path, to: str, status: int, said: str) -> None:
    done = export(installed, to)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
