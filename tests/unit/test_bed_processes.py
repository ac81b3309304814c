"""The environment of a bed's programs: a search path that somebody asked for holds, and ours stands behind it.

What programs print may be any bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from sojourn.bed import host_commands
from sojourn.bed.processes import environment, finish
from sojourn.binary import search_path

if TYPE_CHECKING:
    from sojourn.bed.state import Mark

MARK = cast("Mark", "mark")


def test_requested_search_path_comes_first() -> None:
    found = environment(MARK, {"PATH": "/opt/own/bin", "MINE": "1"})
    assert found["PATH"] == f"/opt/own/bin{os.pathsep}{search_path()}"
    assert found["MINE"] == "1"


def test_without_a_requested_search_path_the_default_is_used() -> None:
    assert environment(MARK)["PATH"] == environment(MARK, {})["PATH"] == search_path()
    assert environment(MARK, {"PATH": ""})["PATH"] == search_path()


def test_output_that_is_not_utf8_is_read() -> None:
    """As of `ip link`, whose interfaces may have any bytes in their names."""
    argv = ["printf", r"\377evil"]
    assert host_commands.run(argv) == "\N{REPLACEMENT CHARACTER}evil"
    assert finish(argv, None, os.environ, "printf") == "\N{REPLACEMENT CHARACTER}evil"
