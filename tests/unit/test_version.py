"""The version that is stated in one place for each language is the one that the programs print."""

from __future__ import annotations

import re
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


def test_the_citation_names_the_latest_release_with_its_date() -> None:
    released = re.search(r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released is not None
    stated = dict(re.findall(r"^(version|date-released): (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert (stated["version"], stated["date-released"]) == released.groups()
