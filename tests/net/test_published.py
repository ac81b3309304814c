"""`sojourn run published` on real frames: each experiment that a study measures has a figure, a verdict or both.

The hosts share no file with the conductor, as in test_own_files.py, which has the other studies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sojourn.report import experiments
from tests.net import own_files

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces by name, and programs in the kernel"),
]


def test_every_published_experiment_is_measured(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("sojourn")
    words: list[str | Path] = [program, "run", "published", "--bed", "own-files", "--no-history", "--out", "all"]
    env = own_files.named(tmp_path / "site")
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr[-2000:]
    for study in experiments.studies():
        own_files.require_finished(tmp_path / "all" / study, study)
    found = json.loads((tmp_path / "all" / "published.json").read_text())
    left_out = {one.about for one in experiments.experiments() if one.quick}  # each with its reason
    measured = [one for one in found if one["study"] and one["about"] not in left_out]
    without = [f"{one['paper']}: {', '.join(one['items'])}: {one['words']}" for one in measured if is_without(one)]
    assert not without
    assert (tmp_path / "all" / "index.html").is_file()


def is_without(one: dict[str, Any]) -> bool:
    """Whether an experiment that has a study has neither a figure nor a hypothesis that was tested."""
    missing = ("not measured", "leaves it out", "not tested")
    return any(words in one["words"] for words in missing) or (one["ours"] is None and not one["words"])
