"""`sojourn run published` on real frames: each experiment that a study measures has a figure, a verdict or both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.proof,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces by name, and programs in the kernel"),
]

LEFT_OUT = {"figure 11", "figure 12"}
"""What the quick runs leave out: the log on the receiver."""


def test_every_published_experiment_is_measured(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("sojourn")
    words: list[str | Path] = [program, "run", "published", "--no-history", "--out", tmp_path / "all"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr[-2000:]
    found = json.loads((tmp_path / "all" / "published.json").read_text())
    without = [
        f"{one['paper']}: {', '.join(one['items'])}: {one['words']}"
        for one in found
        if one["study"] and one["ours"] is None and ": " not in one["words"] and not LEFT_OUT.intersection(one["items"])
    ]
    assert not without
    assert all("not measured" not in one["words"] for one in found)
    assert (tmp_path / "all" / "index.html").is_file()
