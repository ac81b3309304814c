"""The README's answer, and the example of a received report, are what an archived run says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from scripts import make_gallery

README = Path(make_gallery.ROOT / "README.md")


def test_answer_in_the_readme_equals_that_of_the_archived_run() -> None:
    block = next(part for part in README.read_text().split("```\n") if part.startswith("$ sojourn run bridge-latency"))
    command, *lines = block.splitlines()
    with make_gallery.unpacked(make_gallery.GOLDEN / "bridge-latency-real.tar.xz") as run:
        asked = [line.removeprefix("# asked: ") for line in run.plan.read_text().splitlines() if "# asked: " in line]
        assert command == f"$ sojourn run bridge-latency {' '.join(asked)}"
        argv = [str(Path(sys.executable).with_name("sojourn")), "report", str(run.path)]
        environment = {**os.environ, "COLUMNS": "118"}
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    said = [line.rstrip() for line in done.stdout.splitlines()]
    shown = [line for line in lines if line not in {"…", ""} and not line.startswith("Report: ")]
    assert [line for line in shown if line not in said] == []
    assert len(shown) > 6


def test_example_of_a_received_report_equals_the_sentence_of_the_archived_run() -> None:
    page = Path(make_gallery.ROOT / "docs/guide/received-report.md").read_text()
    example = " ".join(line.removeprefix("> ") for line in page.splitlines() if line.startswith("> "))
    with make_gallery.unpacked(make_gallery.GOLDEN / "bridge-latency-real.tar.xz") as run:
        subprocess.run(
            [str(Path(sys.executable).with_name("sojourn")), "report", str(run.path)], capture_output=True, check=True
        )
        sentence = json.loads(run.verdict.read_text())["sentence"]
    assert example == sentence.replace("\u00a0", " ")
