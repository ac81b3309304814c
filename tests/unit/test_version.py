"""The version that is stated in one place for each language is the one that the programs print."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from sojourn.binary import find_instrument
from sojourn.version import __version__

ROOT = Path(__file__).parents[2]


def printed(*argv: str) -> str:
    return subprocess.run([*argv, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


def test_both_programs_print_the_version_that_is_stated() -> None:
    stated = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert stated == __version__
    assert printed(str(Path(sys.executable).with_name("sojourn"))) == stated
    assert printed(find_instrument()) == stated


def test_the_package_has_the_version_of_the_program() -> None:
    assert ProjectMetadata(str(ROOT), PluginManager()).version == __version__
