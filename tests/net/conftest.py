"""Tests that need cgroups of version 2 are skipped, and say so, where none can be made.

What programs answer in a test is held against their published schemas.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.net.asked_programs import answers_as_published, kept_lines

__all__ = ["answers_as_published", "kept_lines"]

ROOT = Path(__file__).parents[2]
NEEDS_CGROUPS = ("test_tcplog_", "test_bed_cgroups")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = obstacle()
    if why is not None:
        for item in items:
            if item.path.name.startswith(NEEDS_CGROUPS):
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def relay_binary() -> None:
    """The relay, built if it is not there yet or no longer new."""
    # For the whole workspace, as `make test` does: libraries with other features would be built anew.
    build = ["cargo", "test", "--locked", "--quiet", "--workspace", "--no-run", "--test", "relay"]
    subprocess.run(build, cwd=ROOT, check=True, timeout=600)


def obstacle() -> str | None:
    """Why no cgroup of version 2 can be made here."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    found = re.search(r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", mounts, re.MULTILINE)
    if found is None:
        return "no cgroups of version 2 are mounted here"
    tried = Path(found[1]) / f"sojourn-test-can-make-{os.getpid()}"  # several workers look at the same time
    try:
        tried.mkdir(exist_ok=True)
        tried.rmdir()
    except OSError as error:
        return f"no cgroup can be made here: {error}"
    return None
