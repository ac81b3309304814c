"""`sojourn tcplog run` looks at the footer that lies in its folder, whatever somebody has put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sojourn.cli.tcplog_run import footer_of
from sojourn.records.decode import MOST_BYTES


@pytest.mark.parametrize("kind", ["nothing", "pipe", "link", "zeros", "folder", "long"])
def test_footer_that_is_no_ordinary_file_is_neither_read_nor_waited_for(tmp_path: Path, kind: str) -> None:
    footer, theirs = tmp_path / "footer.json", tmp_path / "theirs"
    theirs.write_text("{}")
    if kind == "pipe":
        os.mkfifo(footer)
    elif kind in {"link", "zeros"}:
        footer.symlink_to(theirs if kind == "link" else Path("/dev/zero"))
    elif kind == "folder":
        footer.mkdir()
    elif kind == "long":
        footer.touch()
        os.truncate(footer, MOST_BYTES + 1)
    assert footer_of(tmp_path) is None


def test_footer_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "footer.json").write_bytes(b'{"records": 3}\n')
    assert footer_of(tmp_path) == b'{"records": 3}\n'
